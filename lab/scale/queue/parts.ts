/** The parts of `npm run queue`: each returns figures with their limits. */
import { Effect, Fiber, Option, Schedule } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../../src/admin/Registry.ts"
import { type Figure, figure, percentile } from "../figures.ts"
import { type Key, newKey } from "../World.ts"
import { type Answer, ask, flood, nowAndThen } from "./clients.ts"
import { cpuSecondsOf } from "../../../test/support/invariants/processState.ts"
import { Ground, infoOf, slots } from "./Ground.ts"

export interface Plan {
  /** of each measurement of time */
  readonly seconds: number
  readonly serviceMs: number
  readonly kills: number
}

const inForce = { BACKEND_MAX_CONCURRENT: String(slots), QUEUE_MAX_WAIT_MS: "120000" }

const seconds = (count: number) => Effect.sleep(count * 1000)

/** Answers a second of the model server when clients ask it directly. */
const alone = Effect.fnUntraced(function* ({ serviceMs }: Plan) {
  const { backend } = yield* Ground
  backend.setServiceMs(serviceMs)
  const run = yield* flood([backend.url], { name: "direct", secret: "none", prefix: "" }, 50)
  yield* seconds(2)
  backend.reset()
  const since = performance.now()
  yield* seconds(10)
  const perSecond = (backend.served() * 1000) / (performance.now() - since)
  yield* run.stop
  return perSecond
}, Effect.scoped)

/** One tenant with many parallel calls, nine with one call now and then. */
const crowded = Effect.fnUntraced(function* (
  plan: Plan,
  name: string,
  env: Readonly<Record<string, string>>,
  parallel = 50
) {
  const { backend, replicas } = yield* Ground
  const urls = (yield* replicas(env)).map(({ url }) => url)
  backend.setServiceMs(plan.serviceMs)
  const many = yield* newKey(`${name}-many`)
  const nine = yield* Effect.forEach(Array.from({ length: 9 }), (_, i) => newKey(`${name}-${i}`))
  const flooding = yield* flood(urls, many, parallel)
  // Ten service times: all nine together take 0.9 of the two slots.
  const others = yield* nowAndThen(urls, nine, 10 * plan.serviceMs)
  yield* seconds(8)
  backend.reset()
  const since = performance.now()
  yield* seconds(plan.seconds)
  const until = performance.now()
  const served = backend.served()
  const most = backend.most()
  const measured = (answers: ReadonlyArray<Answer>) =>
    answers.filter(({ endedAt }) => endedAt >= since && endedAt < until)
  const waits = measured(others.answers).map(({ ms }) => (ms - plan.serviceMs) / plan.serviceMs)
  const queued = measured(others.answers).map(({ queuedMs }) => queuedMs / plan.serviceMs)
  const bad = (answers: ReadonlyArray<Answer>) => measured(answers).filter(({ status }) => status !== 200)
  yield* Effect.all([flooding.stop, others.stop], { concurrency: 2 })
  return {
    calls: waits.length,
    p50: percentile(waits, 0.5),
    p95: percentile(waits, 0.95),
    /** by `X-Queue-Wait-Ms`: without the time that a busy machine takes */
    queuedP95: percentile(queued, 0.95),
    perSecond: (served * 1000) / (until - since),
    most,
    failed: bad(others.answers).length,
    failedOfMany: bad(flooding.answers),
    ofMany: measured(flooding.answers).length
  }
}, Effect.scoped)

export const fair = Effect.fnUntraced(function* (plan: Plan) {
  const direct = yield* alone(plan)
  const first = yield* crowded(plan, "first", {})
  const queued = yield* crowded(plan, "queued", inForce)
  const sql = yield* SqlClient.SqlClient
  const [rows] = yield* sql<{ readonly good: number; readonly without: number }>`
    SELECT count(*)::int AS good, (count(*) FILTER (WHERE queued_ms IS NULL))::int AS without
    FROM audit_log a JOIN tenants t ON t.id = a.tenant_id
    WHERE t.name LIKE 'queued-%' AND a.status = 200`
  return [
    figure("service time, ms", plan.serviceMs),
    figure("first come, first served: calls of the nine", first.calls),
    figure("first come, first served: wait p50, service times", first.p50),
    figure("first come, first served: wait p95, service times", first.p95),
    figure("first come, first served: answers a second", first.perSecond),
    figure("fair: calls of the nine", queued.calls, (n) => n > 50),
    figure("fair: wait p50, service times", queued.p50),
    figure("fair: wait p95, service times (at most 2.5)", queued.p95, (n) => n <= 2.5),
    figure("fair: the same by X-Queue-Wait-Ms", queued.queuedP95),
    figure("fair: answers of the flood", queued.ofMany),
    figure("fair: requests that failed", queued.failed + queued.failedOfMany.length, (n) => n === 0),
    figure("fair: most requests at the server", queued.most, (n) => n <= slots),
    figure("the server alone: answers a second", direct),
    figure("fair: answers a second", queued.perSecond),
    figure(
      "fair: per cent of the server alone (at least 97)",
      (100 * queued.perSecond) / direct,
      (n) => n >= 97
    ),
    figure("audit rows of answers, without queued_ms", `${rows?.good}, ${rows?.without}`, (text) =>
      text.endsWith(", 0")
    )
  ]
})

/** More calls than may wait. */
export const overfull = Effect.fnUntraced(function* (plan: Plan) {
  const result = yield* crowded(plan, "overfull", { ...inForce, QUEUE_MAX_DEPTH: "32" }, 60)
  const kinds = [...new Set(result.failedOfMany.map(({ status, type }) => `${status} ${type}`))].join(", ")
  const waits = result.failedOfMany.map(({ headers }) => Number(headers["retry-after"]))
  return [
    figure("calls of the nine", result.calls, (n) => n > 20),
    figure("of them refused", result.failed, (n) => n === 0),
    figure("wait p95, service times (at most 2.5)", result.p95, (n) => n <= 2.5),
    figure("the same by X-Queue-Wait-Ms", result.queuedP95),
    figure("wait p50, service times", result.p50),
    figure(
      "answers a second; of the flood",
      `${result.perSecond.toFixed(1)}; ${result.ofMany - result.failedOfMany.length}`
    ),
    figure("refused of the flood", `${result.failedOfMany.length} ${kinds}`, (text) =>
      text.endsWith(" 429 capacity_exceeded")
    ),
    figure("Retry-After, seconds, p50", percentile(waits, 0.5), (n) => n >= 1 && n < 30)
  ]
})

const leaseS = 3
/** After a loss nothing goes for 2.5 s; a replica names its requests once a second. */
const lossS = 2.5 + 1

export const kills = Effect.fnUntraced(function* ({ kills: times }: Plan) {
  const { backend, entries, redis, replicas } = yield* Ground
  const both = yield* replicas({ ...inForce, CONCURRENCY_LEASE_S: String(leaseS) })
  const keys = yield* Effect.forEach(Array.from({ length: 4 }), (_, i) => newKey(`killed-${i}`))
  backend.setServiceMs(400)
  const runs = yield* Effect.forEach(keys, (key) =>
    flood(
      both.map(({ url }) => url),
      key,
      6
    )
  )
  yield* seconds(4)
  backend.reset()
  /** until both places are used, seconds */
  const used = Effect.gen(function* () {
    const since = performance.now()
    while (performance.now() - since < 30_000) {
      if (backend.here() >= slots) return (performance.now() - since) / 1000
      yield* Effect.sleep("10 millis")
    }
    return Number.POSITIVE_INFINITY
  })
  const flush = Effect.promise(() => redis.flushall())
  const [afterKill, afterLoss, afterBoth]: [Array<number>, Array<number>, Array<number>] = [[], [], []]
  for (let n = 0; n < times; n++) {
    yield* Effect.sleep(300 + ((n * 137) % 500))
    const replica = both[n % both.length] ?? both[0]
    // Every fourth time Redis loses its data as well, sometimes just before and sometimes just after.
    const lost = n % 4 === 3
    if (lost && n % 8 === 3) yield* flush
    yield* replica.kill
    if (lost && n % 8 !== 3) yield* flush
    const back = lost ? afterBoth : afterKill
    const [took] = yield* Effect.all([used, replica.start], { concurrency: 2 })
    back.push(took)
    if (n % 3 === 0) {
      yield* Effect.sleep("700 millis")
      yield* flush
      // Those that were at the server end there; then nothing goes until the loss is over.
      yield* Effect.sleep("600 millis")
      afterLoss.push(0.6 + (yield* used))
    }
  }
  const most = backend.most()
  yield* Effect.forEach(runs, ({ stop }) => stop, { concurrency: "unbounded" })
  const answers = runs.flatMap((run) => run.answers)
  yield* seconds(leaseS + 2)
  const left = yield* entries
  const [key] = keys
  const last =
    key === undefined ? [] : yield* Effect.forEach(both, ({ url }) => ask(url, key), { concurrency: 2 })
  const worst = (values: ReadonlyArray<number>) => Math.max(0, ...values)
  const refused = answers.filter(({ status }) => status !== 200 && status !== 0)
  const kinds = [...new Set(refused.map(({ status, type }) => `${status} ${type}`))].join(", ")
  return [
    figure("kill -9 of a replica; of these with FLUSHALL", `${times}; ${afterBoth.length}`),
    figure("FLUSHALL alone", afterLoss.length),
    figure(
      "answers; cut by a kill",
      `${answers.filter(({ status }) => status === 200).length}; ${answers.filter(({ status }) => status === 0).length}`
    ),
    figure("refused", `${refused.length} ${kinds}`),
    figure("most requests of living replicas at the server", most, (n) => n <= slots),
    figure("kill: seconds until both places were used", worst(afterKill), (n) => n <= leaseS + 2),
    figure("FLUSHALL: the same", worst(afterLoss), (n) => n <= lossS + 1.5),
    figure("kill and FLUSHALL: the same", worst(afterBoth), (n) => n <= leaseS + lossS + 1.5),
    figure("requests left in Redis at the end", left, (n) => n === 0),
    figure(
      "then two calls at once, wait, ms",
      Math.max(...last.map(({ queuedMs }) => queuedMs)),
      (n) => n < 200
    )
  ]
}, Effect.scoped)

/** CPU per cent of the replicas and of Redis, and Redis commands a second, over some seconds. */
const costs = Effect.fnUntraced(function* (pids: ReadonlyArray<number>, duration: number) {
  const { redis } = yield* Ground
  const server = yield* infoOf(redis, "process_id")
  const cpu = () => [...pids, server].reduce((sum, pid) => sum + cpuSecondsOf(pid), 0)
  const [ofRedis, cpuOfRedis] = [cpuSecondsOf(server), () => cpuSecondsOf(server)]
  const commands = infoOf(redis, "total_commands_processed")
  const [cpuBefore, commandsBefore, since] = [cpu(), yield* commands, performance.now()]
  yield* seconds(duration)
  const took = (performance.now() - since) / 1000
  return {
    cpu: (100 * (cpu() - cpuBefore)) / took,
    redis: (100 * (cpuOfRedis() - ofRedis)) / took,
    // INFO counts as one.
    commands: ((yield* commands) - commandsBefore - 1) / took
  }
})

const idle = Effect.fnUntraced(function* (env: Readonly<Record<string, string>>, duration: number) {
  const { replicas } = yield* Ground
  const pids = (yield* replicas(env)).map(({ pid }) => pid())
  // Compilation and the first collections are over.
  yield* seconds(10)
  return yield* costs(pids, duration)
}, Effect.scoped)

const depth = 256
/** Clients that ask a full queue again and again, each eight times a second. */
const impatient = 24
/** Nothing ends by itself while it is measured. */
const patient = {
  QUEUE_MAX_WAIT_MS: "600000",
  BACKEND_FIRST_BYTE_TIMEOUT_MS: "600000",
  BACKEND_IDLE_TIMEOUT_MS: "600000"
}

const unanswered: Answer = {
  tenant: "",
  status: 0,
  type: "no answer",
  ms: 0,
  queuedMs: Number.NaN,
  endedAt: 0,
  headers: {}
}

const full = Effect.fnUntraced(function* (duration: number) {
  const { backend, entries, replicas } = yield* Ground
  const both = yield* replicas({ ...inForce, ...patient, QUEUE_MAX_DEPTH: String(depth) })
  const urls = both.map(({ url }) => url)
  const keys = yield* Effect.forEach(Array.from({ length: 16 }), (_, i) => newKey(`full-${i}`, { rpm: 1000 }))
  // All replicas know all keys, and have compiled what they need.
  backend.setServiceMs(10)
  yield* Effect.forEach(urls, (url) => Effect.forEach(keys, (key) => ask(url, key)), { concurrency: 2 })
  backend.setServiceMs(3_600_000)
  const until = Effect.fnUntraced(function* (count: number) {
    const since = performance.now()
    while ((yield* entries) !== count && performance.now() - since < 30_000) yield* Effect.sleep("5 millis")
    return performance.now() - since
  })
  // A busy machine answers some of so many at once with 503: those ask again.
  const stay = (url: string, key: Key) =>
    ask(url, key).pipe(Effect.delay("200 millis"), Effect.repeat({ until: ({ status }) => status !== 503 }))
  const calls: Array<Fiber.Fiber<Answer>> = []
  for (let i = 0; i < depth + slots; i++) {
    const key = keys[i % keys.length]
    if (key === undefined) return yield* Effect.die("no key")
    calls.push(yield* Effect.forkScoped(stay(urls[i % urls.length] ?? "", key)))
    if (i % 16 === 15) yield* until(i + 1)
  }
  yield* until(depth + slots)
  yield* seconds(10)
  const cost = yield* costs(
    both.map(({ pid }) => pid()),
    duration
  )
  const held = yield* entries
  const [key] = keys
  if (key === undefined) return yield* Effect.die("no key")
  const beyond = yield* ask(urls[0] ?? "", key).pipe(
    Effect.timeoutOrElse({ duration: "20 seconds", orElse: () => Effect.succeed(unanswered) })
  )
  // All who wait leave, and the two at the server as well.
  yield* Fiber.interruptAll(calls)
  const leftMs = yield* until(0)
  yield* seconds(1)
  backend.setServiceMs(10)
  const next = yield* ask(urls[1] ?? "", key)
  const sql = yield* SqlClient.SqlClient
  const [rows] = yield* sql<{ readonly left: number; readonly tokens: number; readonly unsaid: number }>`
    SELECT count(*)::int AS left, coalesce(sum(tokens_in + tokens_out), 0)::int AS tokens,
      (count(*) FILTER (WHERE queued_ms IS NULL))::int AS unsaid
    FROM audit_log a JOIN tenants t ON t.id = a.tenant_id WHERE t.name LIKE 'full-%' AND a.status = 499`
  return { beyond, cost, held, leftMs, next, rows }
}, Effect.scoped)

export const cost = Effect.fnUntraced(function* ({ seconds: duration }: Plan) {
  const without = yield* idle({}, duration)
  const empty = yield* idle(inForce, duration)
  const { beyond, cost: busy, held, leftMs, next, rows } = yield* full(duration)
  const retry = Number(beyond.headers["retry-after"])
  return [
    figure(
      "idle, no queue: CPU %, Redis commands a second",
      `${without.cpu.toFixed(2)}, ${without.commands.toFixed(2)}`
    ),
    figure(
      "idle, with a queue: CPU %, Redis commands a second",
      `${empty.cpu.toFixed(2)}, ${empty.commands.toFixed(2)}`
    ),
    figure("an empty queue: Redis commands a second more", empty.commands - without.commands, (n) => n < 0.2),
    figure("places and waiting requests after the measurement", held, (n) => n === depth + slots),
    figure(
      `${depth} wait: CPU %, Redis commands a second`,
      `${busy.cpu.toFixed(2)}, ${busy.commands.toFixed(2)}`
    ),
    figure("a full queue: CPU % more than idle (below 2)", busy.cpu - empty.cpu, (n) => n < 2),
    figure(
      "one more: status, type, Retry-After",
      `${beyond.status} ${beyond.type} ${retry}`,
      () => beyond.status === 429 && beyond.type === "capacity_exceeded" && retry >= 1
    ),
    figure("all leave: ms until the queue was empty", leftMs, (n) => n < 2000),
    figure(
      "rows of those that left, their tokens, without queued_ms",
      `${rows?.left}, ${rows?.tokens}, ${rows?.unsaid}`,
      () => rows?.left === depth + slots
    ),
    // Two were made before, one may have been at the server, and this one counts.
    figure(
      "then the key's requests left, of 1000",
      Number(next.headers["x-ratelimit-remaining-requests"]),
      (n) => n >= 996
    )
  ]
})

/** A full queue that moves, and clients that do not wait for `Retry-After`. */
export const refusals = Effect.fnUntraced(function* ({ seconds: duration, serviceMs }: Plan) {
  const { backend, entries, replicas } = yield* Ground
  const all = yield* replicas({ ...inForce, ...patient, QUEUE_MAX_DEPTH: String(depth) })
  const urls = all.map(({ url }) => url)
  const keys = yield* Effect.forEach(Array.from({ length: 16 }), (_, i) => newKey(`refused-${i}`))
  backend.setServiceMs(10)
  yield* Effect.forEach(urls, (url) => Effect.forEach(keys, (key) => ask(url, key)), { concurrency: 3 })
  backend.setServiceMs(serviceMs)
  const patients = yield* Effect.forEach(keys, (key) => flood(urls, key, 18))
  const since = performance.now()
  while ((yield* entries) < depth + slots && performance.now() - since < 30_000)
    yield* Effect.sleep("50 millis")
  const answers: Array<Answer> = []
  let turn = 0
  const again = Effect.suspend(() => {
    turn += 1
    const key = keys[turn % keys.length]
    // Who gets into the queue leaves it at once, so that these clients are refused most of the time.
    return key === undefined
      ? Effect.die("no key")
      : Effect.timeoutOption(ask(urls[turn % urls.length] ?? "", key), "300 millis")
  })
  const refused = yield* Effect.forkScoped(
    Effect.forEach(
      Array.from({ length: impatient }),
      () =>
        Effect.repeat(
          Effect.map(again, (answer) => void answers.push(...Option.toArray(answer))),
          Schedule.fixed("120 millis")
        ),
      { concurrency: "unbounded", discard: true }
    )
  )
  yield* seconds(5)
  const pids = all.map(({ pid }) => pid())
  const [before, servedBefore] = [answers.length, backend.served()]
  const cost = yield* costs(pids, duration)
  const [measured, served] = [answers.slice(before), backend.served() - servedBefore]
  yield* Fiber.interrupt(refused)
  yield* Effect.forEach(patients, ({ stop }) => stop, { concurrency: "unbounded" })
  const of = (status: number) => measured.filter((one) => one.status === status)
  const times = of(429).map(({ ms }) => ms)
  const perSecond = of(429).length / duration
  return [
    figure("refused a second", perSecond),
    figure("neither refused nor answered", measured.length - of(429).length - of(200).length, (n) => n === 0),
    figure("ms until refused, p50", percentile(times, 0.5)),
    figure("ms until refused, p99", percentile(times, 0.99)),
    figure("CPU %, all replicas and Redis", cost.cpu),
    figure("of it Redis", cost.redis),
    figure("answers a second", served / duration),
    figure("answers a second, of the server alone", (1000 * slots) / serviceMs)
  ]
}, Effect.scoped)

export type Part = (
  plan: Plan
) => Effect.Effect<ReadonlyArray<Figure>, unknown, Ground | Registry | SqlClient.SqlClient>
