/** What the counters are compared with: the ledger's day, month and whole time of many keys, and their open intents. */
import { utc } from "../../../src/domain/Calendar.ts"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import { readTotals } from "../../../src/ledger/totals.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"

const keyAt = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`

/** Each tells by its figure which periods it was counted in. */
const days = [
  { day: "2025-02-14", tokens: 1 },
  { day: "2026-01-31", tokens: 10 },
  { day: "2026-02-01", tokens: 100 },
  { day: "2026-02-14", tokens: 1000 },
  { day: "2026-02-28", tokens: 10_000 },
  { day: "2026-03-01", tokens: 100_000 }
]

const test = testWith(it.live, TestPostgres)

test("when many keys are read at once, then each gets its own sum", function* () {
  const pg = yield* PgClient.PgClient
  const keys = Array.from({ length: 250 }, (_, n) => keyAt(n))
  yield* pg`
      INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT k.id::uuid, k.id::uuid, d.day::date, 1, d.tokens, 2 * d.tokens
      FROM jsonb_array_elements_text(${pg.json(keys.slice(0, -1))}) AS k(id),
        jsonb_to_recordset(${pg.json(days)}) AS d(day text, tokens bigint)`
  const accounts = keys.map((key) => ({ group: "", key }))
  const found = yield* readTotals(pg, accounts, utc.dayAt(Date.parse("2026-02-14T23:59:59.999Z")))
  assert.deepStrictEqual([...found.keys()].sort(), keys)
  const last = keyAt(249)
  for (const [account, truth] of found) {
    const spent =
      account === last
        ? { day: 0, week: 0, month: 0, total: 0 }
        : { day: 3 * 1000, week: 3 * 1000, month: 3 * 11_100, total: 3 * 111_111 }
    assert.deepStrictEqual(truth, { open: 0, ...spent }, account)
  }
  assert.strictEqual((yield* readTotals(pg, [], utc.dayAt(0))).size, 0)
})
