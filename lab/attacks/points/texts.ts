/** Point 15: the CPU of one request, whatever is written in it. */
import { Effect } from "effect"
import { Arena, newKeys } from "../Arena.ts"
import { hardTexts } from "../attackers/texts.ts"
import { type Rows } from "../figures.ts"
import { attack, completed, neighbour } from "../processes.ts"
import type { Assault } from "./Assault.ts"

const point = 18

const assault = (name: string): Assault => ({
  point,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    const [keys, payers] = [yield* newKeys(1), yield* newKeys(4)]
    const victim = yield* (yield* Arena).victim
    /** Milliseconds of CPU of a request. One at a time, so that few are refused for being too many. */
    const cpuOf = Effect.fnUntraced(function* (letters: boolean) {
      const before = victim.cpuSeconds()
      const order = completed(
        { attack: "texts", body: name, stream: !letters, count: 1, seconds: 4 },
        victim.url,
        keys
      )
      const statuses = yield* attack(order)
      const requests = Object.values(statuses).reduce((sum, count) => sum + count, 0)
      return (1000 * (victim.cpuSeconds() - before)) / requests
    })
    yield* cpuOf(true)
    const [letters, hard] = [yield* cpuOf(true), yield* cpuOf(false)]
    const order = completed({ attack: "texts", body: name, count: 4, seconds: 8 }, victim.url, keys)
    const quiet = yield* neighbour(victim.url, payers, 3)
    const [under] = yield* Effect.all([neighbour(victim.url, payers, order.seconds), attack(order)], {
      concurrency: 2
    })
    return [
      row.atMost("CPU of a request, ms", hard, 20),
      row.noted("  of one with letters, ms", letters),
      row.atMost("  times letters", hard / letters, 10),
      row.noted("neighbour's quiet p50, ms", quiet.p50),
      row.noted("  p50 beside 4 connections, ms", under.p50)
    ]
  })
})

export const texts: ReadonlyArray<Assault> = hardTexts.map(assault)
