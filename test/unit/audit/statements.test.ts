/** How rows reach Postgres: as a list for each column, by statements that are planned once. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as PgClient from "@effect/sql-pg/PgClient"
import { auditRow, completionRow } from "../../../src/audit/rows.ts"
import { insertIntents, writeRows } from "../../../src/audit/statements.ts"
import { intentRowOf } from "../../support/permits.ts"
import { endOf, intentOf, refusalOf, usageOf } from "../../support/records.ts"
import { layerTestPostgres, TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { utc } from "../../../src/domain/Calendar.ts"

const test = testWith(it.live, TestPostgres)

test("when a column of a row holds any text, then the row has that text in that column", function* () {
  const pg = yield* PgClient.PgClient
  const hostile = 'a","\\(b),{c}'
  const textsOf = (table: string, row: object) =>
    Effect.map(
      pg<{ readonly name: string }>`
          SELECT attname AS name FROM pg_attribute
          WHERE attrelid = ${table}::text::regclass AND atttypid = 'text'::regtype AND NOT attisdropped`,
      // A rule of the table allows three words only.
      (rows) => rows.map(({ name }) => name).filter((name) => name in row && name !== "usage_source")
    )
  const filled = (names: ReadonlyArray<string>) => Object.fromEntries(names.map((name) => [name, hostile]))
  const [opened, refused] = [intentRowOf(intentOf()), auditRow(refusalOf(), utc)]
  const [intents, log] = [yield* textsOf("intents", opened), yield* textsOf("audit_log", refused)]
  assert.isAbove(intents.length, 7)
  assert.isAbove(log.length, 8)
  yield* insertIntents(pg, 30)([{ ...opened, ...filled(intents) }])
  yield* writeRows(pg)([{ ...refused, ...filled(log) }])
  const [intent] = yield* pg`SELECT * FROM intents WHERE request_id = ${opened.request_id}::text::uuid`
  const [row] = yield* pg`SELECT * FROM audit_log WHERE request_id = ${refused.request_id}::text::uuid`
  assert.deepInclude(intent, filled(intents))
  assert.deepInclude(row, filled(log))
})

testWith(it.live, layerTestPostgres({ maxConnections: 1 }))(
  "when a statement of the audit runs again and again, then Postgres does not plan it each time",
  function* () {
    const pg = yield* PgClient.PgClient
    const [open, write] = [insertIntents(pg, 30), writeRows(pg)]
    for (let n = 0; n < 24; n += 1) {
      // Plans are made anew after the tables were looked at.
      if (n === 12) yield* pg`ANALYZE`
      const intents = Array.from({ length: 1 + (n % 3) }, () => intentOf())
      yield* open(intents.map(intentRowOf))
      yield* write(intents.map((intent) => completionRow(endOf(intent, usageOf(1, 1)), utc)))
      yield* write([auditRow(refusalOf(), utc)])
    }
    const plans = yield* pg<{ readonly generic: number; readonly custom: number }>`
        SELECT generic_plans::integer AS generic, custom_plans::integer AS custom FROM pg_prepared_statements
        WHERE statement LIKE '%unnest(lists.%' AND statement NOT LIKE '%pg_prepared%'`
    assert.sameMembers(
      plans.map(({ custom, generic }) => custom + generic),
      [24, 48]
    )
    for (const { custom } of plans) assert.isAtMost(custom, 5)
  }
)
