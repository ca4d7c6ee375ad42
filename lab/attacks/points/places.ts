/** Points 19 and 20: what is scarce, held by clients that take their time. */
import { Effect, Fiber } from "effect"
import { Arena, mostMiB, newKeys, spentBy, statsOf } from "../Arena.ts"
import { type Rows } from "../figures.ts"
import { completed, neighbour, startAttack } from "../processes.ts"
import type { Assault } from "./Assault.ts"

const wide = { rpm: 1_000_000, tpm: 1_000_000_000 }
const serviceMs = 1000

/** The model server is done after a second, and its place is free then, however slowly its client reads. */
const slowReaders = (connections: number): Assault => {
  const point = 19
  const name = `${connections} connections that take 3 kB/s, 2 places at the model server`
  return {
    point,
    name,
    run: Effect.fnUntraced(function* (row: Rows) {
      const [keys, payers] = [yield* newKeys(1, { ...wide, concurrent: connections }), yield* newKeys(4)]
      const victim = yield* (yield* Arena).victimWith({ BACKEND_MAX_CONCURRENT: "2" })
      const before = yield* statsOf("one-second")
      const order = completed(
        { attack: "3 kB a second", model: "one-second", count: connections, seconds: 200 },
        victim.url,
        keys
      )
      const attacking = yield* startAttack(order)
      const under = yield* neighbour(victim.url, payers, order.seconds - 1, { pauseMs: 200 })
      const met = yield* Fiber.join(attacking)
      const made = yield* statsOf("one-second")
      const charged = yield* spentBy(keys)
      return [
        row.atMost("neighbour's p95, service times", under.p95 / serviceMs, 2.5),
        row.noted("  p50, ms", under.p50),
        row.noted("  longest, ms", under.most),
        row.atMost("neighbour's requests not served", under.requests - (under.statuses["200"] ?? 0), 0),
        row.atLeast("tokens charged of those made", charged / (made.tokens - before.tokens), 1),
        row.noted("  answers", made.calls - before.calls),
        row.atMost("memory at most, MiB", victim.peakMiB(), mostMiB),
        ...row.met(met)
      ]
    })
  }
}

/** Answers with log-probabilities are collected in memory that all answers share. */
const collected: Assault = {
  point: 20,
  name: "3 keys that have 4 answers with log-probabilities each collected",
  run: Effect.fnUntraced(function* (row: Rows) {
    const keys = (yield* Effect.forEach([1, 2, 3], () => newKeys(1, { ...wide, concurrent: 4 }))).flat()
    const payers = yield* newKeys(1)
    const victim = yield* (yield* Arena).victim
    const embeddings = { path: "/api/embed", pauseMs: 200 }
    const quiet = yield* neighbour(victim.url, payers, 5, embeddings)
    const order = completed(
      { attack: "greedy", model: "logprobs", stream: false, count: 12, seconds: 60 },
      victim.url,
      keys
    )
    const cpuBefore = victim.cpuSeconds()
    const attacking = yield* startAttack(order)
    const under = yield* neighbour(victim.url, payers, order.seconds - 1, embeddings)
    const met = yield* Fiber.join(attacking)
    return [
      row.atMost("neighbour's embeddings, p95, ms", under.p95, 2000),
      row.noted("  longest, ms", under.most),
      row.noted("  quiet p95, ms", quiet.p95),
      row.atMost("neighbour's requests not served", under.requests - (under.statuses["200"] ?? 0), 0),
      row.noted("CPU of the gateway, seconds a second", (victim.cpuSeconds() - cpuBefore) / order.seconds),
      row.atMost("memory at most, MiB", victim.peakMiB(), mostMiB),
      ...row.met(met)
    ]
  })
}

export const places: ReadonlyArray<Assault> = [slowReaders(2), slowReaders(16), collected]
