/** Intents that were written although their requests had already been refused. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import { auditRow } from "../../src/audit/rows.ts"
import { insertIntents, writeRows } from "../../src/audit/statements.ts"
import { endExpired } from "../../src/audit/statements.ts"
import { hasIntent, ledgerOf, storedRow } from "../support/auditDatabase.ts"
import { intentRowOf } from "../support/permits.ts"
import { callerOf, endOf, intentOf, usageOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { testWith } from "../support/testWith.ts"
import { utc } from "../../src/domain/Calendar.ts"

const test = testWith(it.live, TestPostgres)

test("when an intent is written after its request was refused, then its lease ends without a charge to the ledger", function* () {
  const pg = yield* PgClient.PgClient
  const caller = callerOf()
  const [refused, dead] = [intentOf({ caller }), intentOf({ caller })]
  const { requestId } = refused.arrival
  // Both statements began at the same time, so neither saw what the other wrote.
  const elsewhere = intentOf({ caller })
  yield* writeRows(pg)([auditRow(endOf(refused, usageOf(0, 0), { status: 429 }), utc)])
  yield* insertIntents(
    pg,
    30
  )([{ ...intentRowOf(refused), request_id: elsewhere.arrival.requestId }, intentRowOf(dead)])
  yield* pg`UPDATE intents SET request_id = ${requestId}::text::uuid
        WHERE request_id = ${elsewhere.arrival.requestId}::text::uuid`

  yield* pg`UPDATE intents SET lease_until = now() - interval '1 second'`

  const account = { group: caller.tenantId, key: caller.keyId, model: "m" }
  assert.deepStrictEqual(yield* endExpired(pg, requestId), account, "its counters are compared")
  assert.isFalse(yield* hasIntent(requestId))
  assert.deepInclude(yield* storedRow(requestId), { status: 429 })
  assert.deepStrictEqual(yield* ledgerOf(caller.keyId), [])
  yield* endExpired(pg, dead.arrival.requestId)
  assert.deepInclude(yield* storedRow(dead.arrival.requestId), { status: 500, error_type: "aborted" })
  assert.lengthOf(yield* ledgerOf(caller.keyId), 1)
})
