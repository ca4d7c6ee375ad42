/** A day's budget of 1,000 with 50 left, and 50 clients at once over two replicas: by how much is it overshot? */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect } from "effect"
import { settledBooks, spentOf } from "../../test/support/books.ts"
import { type Figure, figure } from "./figures.ts"
import { sendAll } from "./Load.ts"
import { type Key, newKey, World } from "./World.ts"

const budget = 1000
const left = 50
const clients = 50

/** The key's ledger says that all but 50 tokens of today are spent. */
const spend = (key: Key) =>
  Effect.flatMap(
    PgClient.PgClient,
    (pg) => pg`INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT id, tenant_id, (now() AT TIME ZONE 'UTC')::date, 1, ${budget - left}, 0
      FROM api_keys WHERE prefix = ${key.prefix}`
  ).pipe(Effect.orDie)

export const overshoot = Effect.gen(function* () {
  const { replicas } = yield* World
  const figures: Array<Figure> = []
  for (const stream of [true, false]) {
    for (const model of ["slow", "short"] as const) {
      const key = yield* newKey(`left-${stream}-${model}`, {}, { day: budget })
      yield* spend(key)
      const outcomes = yield* sendAll(clients, clients, (i) => ({
        url: replicas[i % 2 === 0 ? 0 : 1].url,
        call: { key, model, stream }
      }))
      yield* settledBooks(1)
      const over = (yield* spentOf(key.prefix)) - budget
      const answered = outcomes.filter(({ status }) => status === 200).length
      const name = `${clients} ${stream ? "streams" : "whole answers"} of ${model === "slow" ? 60 : 3} tokens`
      figures.push(
        figure(`${name}: answered`, answered),
        figure(`${name}: tokens over the budget`, over, (n) => n <= 20),
        figure(
          `${name}: refused otherwise than by the budget`,
          outcomes.filter(({ status, type }) => status !== 200 && type !== "budget_exceeded").length,
          (n) => n === 0
        )
      )
    }
  }
  return figures
})
