/**
 * What a decision costs: reserve + settle pairs per second on both Meters, with a total budget claimed and not, and the CPU
 * and commands of a pair.
 *
 *     REDIS_URL=redis://127.0.0.1:6379/9 node bench/meter.ts
 *
 * Without `REDIS_URL` only the in-process Meter is measured. Give Redis an empty database: keys expire by themselves.
 */
import { Context, Effect, Layer, Redacted, Schedule } from "effect"
import { layerMemory } from "../src/gates/meter/memory/layer.ts"
import { Meter, Reserved } from "../src/gates/meter/Meter.ts"
import type { Claims } from "../src/domain/Reservation.ts"
import { layerRedis as layerRedisMeter } from "../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis, Redis } from "../src/infra/Redis.ts"

const pairs = Number(process.env["PAIRS"] ?? 20_000)
const run = `bench-${process.pid}-${Date.now()}`

const claimsOf = (budgets: Claims["budgets"], key: number): Claims => ({
  account: { group: run, key: `key${key}` },
  limits: { rpm: 1_000_000_000, tpm: 1_000_000_000, concurrent: 100_000 },
  budgets
})

const quantile = (sorted: ReadonlyArray<number>, q: number): string =>
  (sorted[Math.floor(sorted.length * q)] ?? Number.NaN).toFixed(3)

/** CPU that Redis has used (µs), and the scripts it has run; zeros without Redis. */
const spentByRedis = Effect.gen(function* () {
  const redis = Context.getOption(yield* Effect.context<never>(), Redis)
  if (redis._tag === "None") return { cpu: 0, scripts: 0 }
  const text = String(yield* redis.value.send("INFO", ["everything"]))
  const field = (name: string) => Number(new RegExp(`^${name}([\\d.]+)`, "m").exec(text)?.[1] ?? 0)
  return {
    cpu: (field("used_cpu_sys:") + field("used_cpu_user:")) * 1e6,
    scripts: field("cmdstat_evalsha:calls=")
  }
})

const measure = Effect.fnUntraced(function* (name: string, budgets: Claims["budgets"], concurrency: number) {
  const meter = yield* Meter
  yield* Effect.retry(meter.ping, Schedule.spaced("20 millis"))
  const accounts = Array.from({ length: 20 }, (_, key) => claimsOf(budgets, key))
  for (const { account } of accounts) yield* meter.load(account, [{ counter: "total", tokens: 0 }])
  const pair = Effect.fnUntraced(function* (i: number, times: Array<number>) {
    const claims = accounts[i % accounts.length] ?? claimsOf(budgets, 0)
    const began = performance.now()
    const verdict = yield* meter.reserve(claims, {
      id: `${name}-${concurrency}-${run}-${i}`,
      tokens: 300,
      slot: true
    })
    if (!(verdict instanceof Reserved)) return yield* Effect.die(verdict)
    times.push(performance.now() - began)
    yield* meter.settle(verdict.reservation, 120)
  })
  const batch = (from: number, count: number, times: Array<number>) =>
    Effect.forEach(
      Array.from({ length: count }, (_, i) => from + i),
      (i) => pair(i, times),
      { concurrency, discard: true }
    )
  yield* batch(0, 2000, [])
  const times: Array<number> = []
  const [before, cpu, began] = [yield* spentByRedis, process.cpuUsage(), performance.now()]
  yield* batch(2000, pairs, times)
  const seconds = (performance.now() - began) / 1000
  const [{ system, user }, after] = [process.cpuUsage(cpu), yield* spentByRedis]
  const perPair = (spent: number) => (spent / pairs).toFixed(1)
  const sorted = times.sort((a, b) => a - b)
  yield* Effect.logInfo(
    `${name}, ${concurrency} in flight: ${Math.round(pairs / seconds)} pairs/s, reserve p50 ${quantile(sorted, 0.5)} ms, p99 ${quantile(sorted, 0.99)} ms; ` +
      `a pair: ${perPair(user + system)} us of CPU here, ${perPair(after.cpu - before.cpu)} us of Redis, ` +
      `${((after.scripts - before.scripts) / pairs).toFixed(2)} commands`
  )
})

const all = Effect.fnUntraced(function* (name: string) {
  for (const concurrency of [1, 32, 96]) {
    yield* measure(`${name}, no budget`, {}, concurrency)
    yield* measure(`${name}, total budget`, { total: 1_000_000_000_000 }, concurrency)
  }
})

const url = process.env["REDIS_URL"]
const program = Effect.gen(function* () {
  yield* Effect.provide(all("memory"), layerMemory({ leaseS: 30 }))
  if (url === undefined) return
  const redis = layerRedis({ url: Redacted.make(url) })
  yield* Effect.provide(all("redis"), layerRedisMeter({ leaseS: 30 }).pipe(Layer.provideMerge(redis)))
})

await Effect.runPromise(program)
