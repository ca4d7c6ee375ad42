/** Intents that were written although their requests had already been refused. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { auditRow, intentRow } from "../../src/audit/rows.ts"
import { insertAudit, insertIntents } from "../../src/audit/statements.ts"
import { noResets } from "../../src/domain/Limits.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { closeExpired } from "../../src/ledger/expiredIntents.ts"
import { hasIntent, ledgerOf, storedRow } from "../support/auditDatabase.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"

it.live(
  "when an intent is written after its request was refused, then its lease ends without a charge to the counters or the ledger",
  () =>
    Effect.gen(function* () {
      const pg = yield* PgClient.PgClient
      const caller = callerOf()
      const [refused, dead] = [intentOf({ caller }), intentOf({ caller })]
      const { requestId } = refused.arrival
      // Both statements began at the same time, so neither saw what the other wrote.
      const elsewhere = intentOf({ caller })
      yield* insertAudit(pg)([auditRow(endOf(refused, usageOf(0, 0), { status: 429 }))])
      yield* insertIntents(
        pg,
        30
      )([{ ...intentRow(refused), request_id: elsewhere.arrival.requestId }, intentRow(dead)])
      yield* pg`UPDATE intents SET request_id = ${requestId}::text::uuid
        WHERE request_id = ${elsewhere.arrival.requestId}::text::uuid`

      yield* pg`UPDATE intents SET lease_until = now() - interval '1 second'`

      const settled: Array<string> = []
      const suspects: Array<string> = []
      const close = (id: string) =>
        Effect.gen(function* () {
          const meter = yield* Meter
          yield* closeExpired(pg, meter, { add: ({ key }) => void suspects.push(key) }, { only: id })
        }).pipe(
          Effect.provide(
            Layer.mock(Meter, {
              settle: ({ id }) =>
                Effect.suspend(() => {
                  settled.push(id)
                  return Effect.succeed({
                    requests: { limit: 1, remaining: 1 },
                    tokens: { limit: 1, remaining: 1 },
                    budgets: {},
                    resets: noResets
                  })
                })
            })
          )
        )
      yield* close(requestId)
      assert.deepStrictEqual(settled, [])
      assert.lengthOf(suspects, 1, "the counters are compared, because they may hold something for it")
      assert.isFalse(yield* hasIntent(requestId))
      assert.deepInclude(yield* storedRow(requestId), { status: 429 })
      assert.deepStrictEqual(yield* ledgerOf(caller.keyId), [])
      yield* close(dead.arrival.requestId)
      assert.deepStrictEqual(settled, [dead.arrival.requestId], "a request without a row is settled")
    }).pipe(Effect.provide(TestPostgres))
)
