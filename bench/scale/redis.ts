/**
 * A Redis Cluster of three nodes: what share of the work the busiest node has. All keys of a tenant are on one node, so many
 * tenants share the nodes and one big tenant has one node.
 */
import { Redis } from "ioredis"
import { Effect, Layer, Redacted, References, Schedule } from "effect"
import type { Claims } from "../../src/domain/Reservation.ts"
import { Meter, Reserved } from "../../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis } from "../../src/infra/Redis.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisCluster } from "../../test/support/servers/RedisCluster.ts"
import { figure, type Say } from "./report.ts"

const seconds = 4
const inFlight = 50

const claimsOf = (tenant: number, key: number): Claims => ({
  account: { group: `tenant-${tenant}`, key: `key-${tenant}-${key}` },
  limits: { rpm: 1_000_000_000, tpm: 1_000_000_000, concurrent: 100_000 },
  budgets: { total: 1_000_000_000_000 }
})

/** CPU µs of each node so far. */
const cpuOf = (nodes: ReadonlyArray<Redis>) =>
  Effect.promise(() =>
    Promise.all(
      nodes.map(async (node) => {
        const info = await node.info("cpu")
        const of = (field: string) => Number(new RegExp(`^${field}:([\\d.]+)`, "m").exec(info)?.[1]) * 1e6
        return of("used_cpu_user") + of("used_cpu_sys")
      })
    )
  )

/** `tenants` with `keys` each, in turn. */
const load = Effect.fnUntraced(function* (name: string, tenants: number, keys: number) {
  const meter = yield* Meter
  yield* Effect.retry(meter.ping, Schedule.spaced("20 millis"))
  const claims = Array.from({ length: tenants }, (_, tenant) =>
    Array.from({ length: keys }, (_, key) => claimsOf(tenant, key))
  ).flat()
  yield* Effect.forEach(claims, ({ account }) => meter.load(account, [{ counter: "total", tokens: 0 }]), {
    concurrency: inFlight,
    discard: true
  })
  const until = performance.now() + seconds * 1000
  let pairs = 0
  const caller = Effect.gen(function* () {
    while (performance.now() < until) {
      pairs += 1
      const mine = claims[pairs % claims.length]
      if (mine === undefined) return
      const id = `${name}-${pairs}`
      const verdict = yield* meter.reserve(mine, { id, tokens: 300, slot: true })
      if (!(verdict instanceof Reserved)) return yield* Effect.die(verdict)
      yield* meter.settle(verdict.reservation, 120)
    }
  })
  yield* Effect.all(
    Array.from({ length: inFlight }, () => caller),
    { concurrency: "unbounded", discard: true }
  )
  return pairs
})

export const redis = Effect.fnUntraced(function* (say: Say) {
  const nodes = yield* makeRedisCluster(findRedis())
  const clients = yield* Effect.acquireRelease(
    Effect.sync(() => nodes.map(({ url }) => new Redis(url))),
    (all) => Effect.sync(() => all.forEach((client) => client.disconnect()))
  )
  const url = Redacted.make(nodes.map(({ url }) => url).join(","))
  const meter = Layer.provide(layerRedisMeter({ leaseS: 30 }), layerRedis({ url }))
  for (const [name, tenants, keys] of [
    ["one tenant with 300 keys", 1, 300],
    ["10 tenants with 30 keys each", 10, 30],
    ["300 tenants with one key each", 300, 1]
  ] as const) {
    const before = yield* cpuOf(clients)
    const pairs = yield* load(name, tenants, keys).pipe(
      Effect.provide(meter),
      // It says that there is no Redis until it is connected.
      Effect.provideService(References.MinimumLogLevel, "Fatal")
    )
    const after = yield* cpuOf(clients)
    const spent = after.map((cpu, n) => cpu - (before[n] ?? 0))
    const all = spent.reduce((sum, cpu) => sum + cpu, 0)
    const busiest = Math.max(...spent) / all
    yield* say(
      figure(`${name}`, [
        `${Math.round(pairs / seconds)} requests a second from one process`,
        `${Math.round(all / pairs)} µs of Redis a request`,
        `the busiest node has ${Math.round(100 * busiest)} % of it`
      ])
    )
  }
})
