/**
 * Simulates a model server that holds one model, for `test/support/turns.ts`: what its own order serves, the queue without models,
 * and the queue with turns, by the twin in memory and by the script in a real Redis. Exit 1 when a figure is beyond its limit.
 */
import { once } from "node:events"
import { Clock, Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { layerMemoryOf, QueueMemory } from "../../src/gates/queue/memory.ts"
import { QueueStore } from "../../src/gates/queue/QueueStore.ts"
import { makeRedisQueueStore } from "../../src/gates/queue/redis/RedisQueueStore.ts"
import { layerRedis, Redis } from "../../src/infra/Redis.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"
import {
  boundOf,
  type Figures,
  light,
  makeWorld,
  type Queue,
  simulate,
  teams,
  weighted,
  type World
} from "../../test/support/turns.ts"

const leaseS = 1e6

const inMemory = Effect.gen(function* () {
  const memory = new QueueMemory({ leaseS })
  const of = (name: string) => Effect.provide(QueueStore, layerMemoryOf(memory, name))
  return [yield* of("a"), yield* of("b")] as const
})

const inRedis = Effect.gen(function* () {
  const redis = yield* Redis
  if (redis.client.status !== "ready") yield* Effect.promise(() => once(redis.client, "ready"))
  yield* redis.send("FLUSHDB", [])
  const store = makeRedisQueueStore({ leaseS, graceMs: 0 }, Clock.currentTimeMillis)
  return [yield* store, yield* store] as const
})

const layerOwnRedis = Layer.unwrap(
  Effect.map(makeRedisServer(findRedis()), ({ url }) => layerRedis({ url: Redacted.make(url) }))
)

const seconds = (ms: number): string => (ms / 1000).toFixed(1)

const line = (name: string, { tenants }: World, figures: Figures): string =>
  [
    name.padEnd(22),
    String(figures.served).padStart(6),
    String(figures.loads).padStart(6),
    `${Math.round(figures.busy * 100)} %`.padStart(6),
    ...tenants.map(
      ({ name: tenant }) =>
        `  ${tenant} ${figures.servedOf(tenant)}, waits ${seconds(figures.waitOf(tenant, 0.5))} / ${seconds(figures.waitOf(tenant, 0.95))} / ${seconds(figures.waitOf(tenant, 1))} s`
    )
  ].join("")

const print = (text: string) => void process.stdout.write(`${text}\n`)

const program = Effect.gen(function* () {
  const wrong: Array<string> = []
  const limit = (what: string, figure: number, isGood: boolean) => {
    print(`  ${isGood ? "ok  " : "FAIL"} ${what}: ${figure.toFixed(2)}`)
    if (!isGood) wrong.push(what)
  }
  for (const [title, tenants] of [
    ["a flood with two models, a team with one, and a light tenant", teams],
    ["two floods of weights 1 and 3, each with its model", weighted]
  ] as const) {
    const world = makeWorld(tenants, { durationMs: 3_600_000 })
    print(
      `\n${title}: ${world.places} places, ${world.serviceMs / 1000} s a request, ${world.loadMs / 1000} s a load, an hour`
    )
    print(`${"".padEnd(22)}served loads   busy  of each: served, waits p50 / p95 / longest`)
    const run = Effect.fnUntraced(function* (name: string, queue: Queue) {
      const figures = yield* simulate(world, queue)
      print(line(name, world, figures))
      return figures
    })
    const none = yield* run("the server's own order", { kind: "none" })
    const blind = yield* run("queue without models", { kind: "blind", replicas: yield* inMemory })
    for (const [name, replicas] of [
      ["turns, in memory", yield* inMemory],
      ["turns, in Redis", yield* inRedis]
    ] as const) {
      const turns = yield* run(name, { kind: "models", replicas })
      limit("times the server's own order", turns.served / none.served, turns.served >= 3 * none.served)
      limit("times the queue without models", turns.served / blind.served, turns.served >= 3 * blind.served)
      if (tenants === teams) {
        const p95 = turns.waitOf(light.name, 0.95)
        limit(
          `p95 of the light tenant in s, at most ${seconds(boundOf(world))}`,
          p95 / 1000,
          p95 <= boundOf(world)
        )
      } else {
        const ratio = turns.servedOf("three") / turns.servedOf("one")
        limit("share of weight 3 to 1", ratio, ratio >= 2.7 && ratio <= 3.3)
      }
    }
  }
  process.exitCode = wrong.length === 0 ? 0 : 1
})

// The server starts on the wall clock; the simulation has its own.
await Effect.runPromise(
  Effect.scoped(program).pipe(Effect.provide(TestClock.layer().pipe(Layer.provideMerge(layerOwnRedis))))
)
