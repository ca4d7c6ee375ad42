/** A replica that was cut off, whose requests another one has closed for it: what was written first stays, and is told. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { auditRow, intentRow } from "../../src/audit/rows.ts"
import { closeIntents, insertIntents } from "../../src/audit/statements.ts"
import { auditSumsOf, ledgerOf } from "../support/auditDatabase.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"

layer(TestPostgres, { excludeTestServices: true, timeout: 30_000 })("a late end", (it) => {
  it.effect("is counted when its amount is another one, and not when it is only told twice", () =>
    Effect.gen(function* () {
      const pg = yield* PgClient.PgClient
      const caller = callerOf()
      const [cut, whole] = [intentOf({ caller }), intentOf({ caller })]
      yield* insertIntents(pg, 30)([intentRow(cut), intentRow(whole)])
      const close = closeIntents(pg)
      const done = auditRow(endOf(whole, usageOf(1, 2)))
      assert.strictEqual(yield* close([done]), 0)
      assert.strictEqual(yield* close([done]), 0, "a row whose answer was lost is sent again")
      const aborted = endOf(cut, usageOf(5, 10), { status: 500, errorType: "aborted" })
      assert.strictEqual(yield* close([auditRow(aborted)]), 0)
      assert.strictEqual(yield* close([auditRow(endOf(cut, usageOf(7, 30))), done]), 1)
      const sums = yield* auditSumsOf(caller.keyId)
      assert.deepInclude(sums[0], { requests: 2, tokensIn: 6, tokensOut: 12 })
      assert.deepStrictEqual(yield* ledgerOf(caller.keyId), sums)
    })
  )
})
