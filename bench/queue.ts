/**
 * What a decision of the line costs, by the number of tenants that wait: one request ends and the next one goes, one comes.
 * In memory, and in Redis when `REDIS_URL` names one that may be emptied: `node bench/queue.ts`.
 */
import { Effect, Layer, Redacted } from "effect"
import { once } from "node:events"
import { FairScheduler } from "../src/gates/queue/FairScheduler.ts"
import { makeRedisQueueStore } from "../src/gates/queue/redis/RedisQueueStore.ts"
import type { Ticket } from "../src/gates/queue/QueueStore.ts"
import { layerRedis, Redis } from "../src/infra/Redis.ts"

const ticket = (i: number, tenants: number): Ticket => ({
  id: `r${i}`,
  tenant: `tenant-${i % tenants}`,
  key: `key-${i % tenants}`,
  model: "m",
  weight: 1,
  priority: "interactive",
  cost: 300
})

const print = (line: string) => process.stdout.write(`${line}\n`)

const turns = 2000

const inMemory = (tenants: number) => {
  const scheduler = new FairScheduler({ leaseMs: 1e12, graceMs: 0, batchEveryMs: 1e12 }, 0, true)
  const bounds = { places: 8, depth: 1e9 }
  let next = 0
  const running: Array<string> = []
  for (; next < tenants + bounds.places; next++) {
    scheduler.enter(0, "a", ticket(next, tenants), bounds)
    if (next < bounds.places) running.push(`r${next}`)
  }
  const begun = performance.now()
  for (let turn = 0; turn < turns; turn++) {
    for (const { id } of scheduler.end(turn, running.shift() ?? "", 250, bounds).messages) running.push(id)
    scheduler.enter(turn, "a", ticket(next++, tenants), bounds)
  }
  return ((performance.now() - begun) * 1000) / turns
}

const inRedis = (tenants: number) =>
  Effect.gen(function* () {
    const redis = yield* Redis
    if (redis.client.status !== "ready") yield* Effect.promise(() => once(redis.client, "ready"))
    yield* redis.send("FLUSHDB", [])
    const store = yield* makeRedisQueueStore({ leaseS: 3600, graceMs: 1 })
    const bounds = { places: 8, depth: 1e9 }
    const running: Array<string> = []
    yield* store.onMessage(({ id }) => Effect.sync(() => void running.push(id)))
    yield* store.beat([], [], bounds)
    yield* Effect.sleep("5 millis")
    let next = 0
    for (; next < tenants + bounds.places; next++) {
      yield* store.enter(ticket(next, tenants), bounds)
      if (next < bounds.places) running.push(`r${next}`)
    }
    const usedBefore = yield* redis.send("INFO", ["commandstats"])
    const begun = performance.now()
    for (let turn = 0; turn < turns; turn++) {
      const id = running.shift()
      if (id !== undefined) yield* store.end(id, 250, bounds)
      yield* store.enter(ticket(next++, tenants), bounds)
    }
    const ms = performance.now() - begun
    const usedAfter = yield* redis.send("INFO", ["commandstats"])
    const usec = (text: unknown) => Number(/cmdstat_evalsha:.*?usec=(\d+)/.exec(String(text))?.[1] ?? 0)
    return {
      wallUs: (ms * 1000) / turns,
      redisUs: (usec(usedAfter) - usec(usedBefore)) / turns
    }
  })

print("tenants waiting | memory, µs a turn | Redis: µs of its time a turn | µs with the way there and back")
const url = process.env["REDIS_URL"]
for (const tenants of [10, 100, 256, 1000, 10_000]) {
  const memory = inMemory(tenants)
  const redis =
    url === undefined
      ? undefined
      : await Effect.runPromise(
          Effect.scoped(inRedis(tenants)).pipe(
            Effect.provide(Layer.fresh(layerRedis({ url: Redacted.make(url) })))
          )
        )
  print(
    [tenants, memory.toFixed(1), redis?.redisUs.toFixed(0) ?? "-", redis?.wallUs.toFixed(0) ?? "-"].join(
      " | "
    )
  )
}
