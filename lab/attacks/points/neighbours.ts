/** Points 9 to 13: what one attacker does to everybody else. */
import { request } from "node:http"
import { Effect, Fiber } from "effect"
import { Arena, mostMiB, newKeys, rowsBeside } from "../Arena.ts"
import { type Rows } from "../figures.ts"
import { completed, type Key, type Neighbour, neighbour, type Plan, startAttack } from "../processes.ts"
import type { Assault } from "./Assault.ts"

const refusedOf = ({ requests, statuses }: Neighbour): number => requests - (statuses["200"] ?? 0)

interface Trouble {
  readonly point: number
  readonly name: string
  readonly plan: Plan
  readonly limits?: { readonly rpm?: number; readonly tpm?: number; readonly concurrent?: number }
  readonly keys?: number
  /** rows a second that the attack may leave in the audit log */
  readonly rowsPerSecond?: number
  /** percent of the neighbour's requests that may not be served; default 1 */
  readonly maxRefused?: number
  /** whether its requests are capped at about 100 a second after a burst of 200, and so are their rows */
  readonly capped?: boolean
  /** how long the attack goes on before its neighbour comes, seconds; default 1.5 */
  readonly leadS?: number
  /** whether an honest stranger's 403 is timed as well */
  readonly stranger?: boolean
}

/** How long an honest request to a blocked path takes, ms; `undefined` when there was no answer in 10 s. */
const strangerMs = (url: string) =>
  Effect.callback<number | undefined>((resume) => {
    const began = performance.now()
    const asked = request(
      `${url}/api/pull`,
      { localAddress: "127.0.0.11", agent: false, timeout: 10_000 },
      (response) => {
        response.resume().on("end", () => resume(Effect.succeed(performance.now() - began)))
      }
    )
    asked.on("timeout", () => asked.destroy())
    asked.on("error", () => resume(Effect.undefined))
    asked.end()
    return Effect.sync(() => void asked.destroy())
  })

const strangers = Effect.fnUntraced(function* (url: string, until: number) {
  const waits: Array<number> = []
  while (performance.now() < until) {
    waits.push((yield* strangerMs(url)) ?? 10_000)
    yield* Effect.sleep("400 millis")
  }
  return waits
})

const trouble = ({
  keys: keyCount = 1,
  leadS = 1.5,
  limits = { rpm: 1, tpm: 1000, concurrent: 1 },
  maxRefused = 1,
  name,
  plan,
  point,
  capped = false,
  rowsPerSecond,
  stranger = false
}: Trouble): Assault => ({
  point,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    const keys = keyCount === 0 ? [] : yield* newKeys(keyCount, limits)
    const payers = yield* newKeys(4)
    const victim = yield* (yield* Arena).victim
    const order = completed(plan, victim.url, keys)
    const { seconds } = order
    yield* neighbour(victim.url, payers, 1.5)
    const quiet = yield* neighbour(victim.url, payers, 3)
    const [rowsBefore, cpuBefore] = [yield* rowsBeside(payers), victim.cpuSeconds()]
    const attacking = yield* startAttack(order)
    const pastS = (seconds * leadS) / (plan.seconds ?? 8)
    yield* Effect.sleep(pastS * 1000)
    const waiting = yield* Effect.forkChild(
      stranger ? strangers(victim.url, performance.now() + (seconds - pastS) * 1000) : Effect.succeed([]),
      { startImmediately: true }
    )
    const under = yield* neighbour(victim.url, payers, seconds - pastS - 1.5)
    const met = yield* Fiber.join(attacking)
    const waits = (yield* Fiber.join(waiting)).toSorted((a, b) => a - b)
    const cpu = victim.cpuSeconds() - cpuBefore
    yield* Effect.sleep("1500 millis")
    const written = (yield* rowsBeside(payers)) - rowsBefore - waits.length
    // A little more than what the cap lets through.
    const most = keyCount * (100 * seconds + 200) * 1.1
    const maxRows = capped ? most / seconds + 1 : rowsPerSecond
    return [
      row.atMost("neighbour's p50, times its quiet p50", under.p50 / quiet.p50, 2),
      row.noted("  quiet p50, ms", quiet.p50),
      row.noted("  p50, ms", under.p50),
      row.noted("  p99, ms", under.p99),
      row.atMost("neighbour's requests not served, %", (100 * refusedOf(under)) / under.requests, maxRefused),
      maxRows === undefined
        ? row.noted("rows a second", written / seconds)
        : row.atMost("rows a second", written / seconds, maxRows),
      ...(capped ? [row.atMost("served", met["200"] ?? 0, most)] : []),
      ...(stranger
        ? [row.atMost("an honest 403 waits, ms (median)", waits[Math.floor(waits.length / 2)] ?? 0, 500)]
        : []),
      row.noted("CPU of the gateway, seconds a second", cpu / seconds),
      row.atMost("memory at most, MiB", victim.peakMiB(), mostMiB),
      ...row.met(met)
    ]
  })
})

const failing = { limits: { rpm: 60, tpm: 1_000_000, concurrent: 4 } }
const failures = (name: string, model: string, more: Partial<Trouble> = {}): Trouble => ({
  point: 9,
  name,
  plan: { attack: "hammer", model, count: 4 },
  ...failing,
  ...more
})

const free = { point: 10, capped: true }

const lists = (name: string, plan: Plan): Trouble => ({ ...free, name, plan })

const anonymous = (name: string, body: string, more: Partial<Plan> = {}): Trouble => ({
  point: 11,
  name,
  keys: 0,
  stranger: true,
  rowsPerSecond: 5,
  plan: { attack: "send and leave", body, rate: 1500, ...more }
})

const connections = (name: string, plan: Partial<Plan>): Trouble => ({
  point: 13,
  name,
  keys: 0,
  // The house is full before anybody else comes.
  leadS: 10,
  plan: { attack: "occupy", count: 16_384, seconds: 18, from: ["127.0.0.1"], ...plan }
})
const many = Array.from({ length: 6 }, (_, i) => `127.0.1.${i + 1}`)

const troubles: ReadonlyArray<Trouble> = [
  failures("500 to one key", "says-500"),
  failures("resets to one key", "resets"),
  failures("no JSON to one key", "garbage"),
  failures("an error in the middle to one key", "breaks-later"),
  failures("a line without end to one key", "endless-line"),
  failures("500 to two keys of one tenant", "says-500", { keys: 2 }),
  failures("one served, then three 500 at once, two keys of a tenant", "says-500", {
    keys: 2,
    maxRefused: 0,
    plan: { attack: "serve and fail", model: "says-500", count: 8, rate: 4000, seconds: 75 }
  }),
  lists("/api/tags, 64 connections", { attack: "hammer", path: "/api/tags", count: 64 }),
  lists("/api/tags, 1,000 connections", { attack: "hammer", path: "/api/tags", count: 1000 }),
  lists("/api/tags, left after 3 ms", { attack: "leave early", path: "/api/tags", count: 64, rate: 3 }),
  lists("/v1/models, pipelined", { attack: "pipelined lists", path: "/v1/models", count: 20 }),
  lists("HEAD /api/version, pipelined", {
    attack: "pipelined lists",
    path: "/api/version",
    body: "HEAD",
    count: 20
  }),
  lists("refusals beyond rpm 1", { attack: "hammer", count: 64 }),
  lists("bodies of 250 kB that are no JSON", { attack: "malformed", count: 64 }),
  lists("bodies of 250 kB that are too deep", { attack: "malformed", body: "deep", count: 64 }),
  lists("a model that is not there", { attack: "hammer", model: "nothing", count: 64 }),
  lists("a scope or field that is wrong", { attack: "hammer", body: '{"model":1}', count: 64 }),
  lists("dense bodies", { attack: "dense bodies", body: "{}", count: 40 }),
  lists("a body that is too large", {
    attack: "hammer",
    body: "too large",
    count: 32
  }),
  {
    ...lists("20 keys of one tenant, /api/tags", { attack: "hammer", path: "/api/tags", count: 64 }),
    keys: 20
  },
  anonymous("a blocked path, reset after 3 ms", "path"),
  anonymous("an unknown key, reset after 3 ms", "unknown"),
  anonymous("50 pipelined, reset after 3 ms", "pipelined", { rate: 300 }),
  anonymous("no HTTP, reset after 3 ms", "malformed"),
  anonymous("a blocked path, ended after 3 ms", "path", { stream: false }),
  {
    ...anonymous("blocked paths, waiting for their answers", "path"),
    plan: { attack: "send and stay", body: "path", count: 1000 },
    rowsPerSecond: 260
  },
  {
    point: 12,
    name: "1,500 wrong secrets a second, one prefix",
    plan: { attack: "guess", count: 2000, rate: 1500 }
  },
  {
    point: 12,
    name: "1,500 unknown keys a second",
    keys: 0,
    plan: { attack: "guess", count: 2000, rate: 1500 }
  },
  connections("16,384 silent ones, one address", {}),
  connections("16,384 that drip, one address", { body: "drip" }),
  connections("16,384 kept alive after a 401, one address", { body: "idle" }),
  connections("16,384 silent ones, six addresses", { from: many }),
  connections("16,384 that drip, six addresses", { from: many, body: "drip" }),
  connections("16,384 kept alive after a 401, six addresses", { from: many, body: "idle" })
]

/** Point 12: the owner of a key at a replica that has not seen it yet, beside guesses at its prefix. */
const lockout = (
  name: string,
  rate: number,
  {
    from = [],
    how = "guess",
    leadS = 3,
    otherPrefixes = 0
  }: { from?: ReadonlyArray<string>; how?: string; leadS?: number; otherPrefixes?: number } = {}
): Assault => ({
  point: 12,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    const maxSeconds = 15
    const [owner, ...others] = yield* newKeys(1 + otherPrefixes)
    if (owner === undefined) return []
    const victim = yield* (yield* Arena).victim
    const guessed: ReadonlyArray<Key> = [owner, ...others].map(({ prefix }) => ({ prefix, secret: prefix }))
    const attacking = yield* startAttack(
      completed(
        { attack: how, rate, from, count: 2000, seconds: maxSeconds + leadS + 1 },
        victim.url,
        guessed
      )
    )
    yield* Effect.sleep(leadS * 1000)
    const began = performance.now()
    let tries = 0
    let status = 0
    const inAfter = () => (performance.now() - began) / 1000
    while (status !== 200 && inAfter() < maxSeconds) {
      tries += 1
      status = yield* Effect.promise(() =>
        fetch(`${victim.url}/api/version`, {
          headers: { authorization: `Bearer ${owner.secret}` },
          signal: AbortSignal.timeout(8000)
        }).then(
          async (response) => {
            await response.text()
            return response.status
          },
          () => 0
        )
      )
      if (status !== 200) yield* Effect.sleep("250 millis")
    }
    const seconds = inAfter()
    yield* Fiber.interrupt(attacking)
    return [
      row.atMost("the owner is in after, seconds", status === 200 ? seconds : maxSeconds, 5),
      row.noted("  tries", tries)
    ]
  })
})

export const neighbours: ReadonlyArray<Assault> = [
  ...troubles.filter(({ point }) => point < 12).map(trouble),
  lockout("400 wrong secrets a second, one prefix", 400),
  lockout("1,500 wrong secrets a second, one prefix", 1500),
  lockout("1,500 wrong secrets a second, 50 prefixes", 1500, { otherPrefixes: 49 }),
  lockout("1,500 a second, each wrong secret again and again", 1500, { how: "insist", leadS: 12 }),
  lockout("1,500 a second, again and again, from another address", 1500, {
    how: "insist",
    leadS: 12,
    from: ["127.0.0.21"]
  }),
  ...troubles.filter(({ point }) => point >= 12).map(trouble)
]
