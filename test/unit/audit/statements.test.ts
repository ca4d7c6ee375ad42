/** How rows reach Postgres: as the text of an array of a composite type, by statements that are planned once. */
import { assert, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as fc from "fast-check"
import { arrayOf } from "../../../src/audit/composite.ts"
import { auditRow, intentRow } from "../../../src/audit/rows.ts"
import { closeIntents, insertAudit, insertIntents } from "../../../src/audit/statements.ts"
import { endOf, intentOf, refusalOf, usageOf } from "../../support/records.ts"
import { layerTestPostgres, TestPostgres } from "../../support/TestPostgres.ts"

/** What somebody would send to break out of a value, and what Postgres refuses or reads in its own way. */
const hostile = `"\\,(){}' \t\n\u0000\u001b\u007f\u2028aÜ`
const piece = fc.constantFrom(...hostile, "\ud800", "😀", "NULL", '\\"', '")', '","', "$1", "\\u0041", "\\n")
const text = fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join(""))
/** jsonb takes neither NUL nor halves of characters. */
const storable = text.map((value) => value.toWellFormed().replaceAll("\u0000", ""))
const row = fc.record({
  a: fc.option(text),
  b: text,
  n: fc.maxSafeInteger(),
  f: fc.option(fc.boolean()),
  t: fc.oneof(storable, fc.constantFrom("", "a/1/-", "null", "1")),
  j: fc.record({ [`k"\\`]: storable, list: fc.array(storable, { maxLength: 3 }) })
})

/** A text as it is stored: without control characters and halves of characters. */
const stored = (value: string) =>
  value.toWellFormed().replaceAll(/[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu, "")

layer(TestPostgres, { excludeTestServices: true })("texts of composite rows", (it) => {
  it.effect("when a text holds what ends a value, a row or an array, then it stays inside its column", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`CREATE TYPE tried AS (a text, b text, n bigint, f boolean, t jsonb, j jsonb)`
      const samples = fc.sample(row, { numRuns: 2000, seed: 20 })
      const textOf = arrayOf<(typeof samples)[number]>([
        ["a", "text"],
        ["b", "text"],
        ["n", "bare"],
        ["f", "bare"],
        ["t", "json"],
        ["j", "json"]
      ])
      for (const size of [1, 7, 2000]) {
        const rows = samples.slice(0, size)
        const read = yield* sql.unsafe<{ readonly t: string; readonly j: string }>(
          "SELECT a, b, n::float8, f, t::text AS t, j::text AS j FROM unnest((SELECT $1::tried[]))",
          [textOf(rows)]
        )
        assert.deepStrictEqual(
          read.map((one) => ({ ...one, t: JSON.parse(one.t), j: JSON.parse(one.j) })),
          rows.map((one) => ({ ...one, a: one.a === null ? null : stored(one.a), b: stored(one.b) }))
        )
      }
    })
  )

  it.effect(
    "when a migration has made a type of rows, then its attributes are columns of the table, with their types",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const attributes = (name: string) =>
          Effect.map(
            sql<{ readonly attribute: string }>`
            SELECT attname || ' ' || format_type(atttypid, atttypmod) AS attribute FROM pg_attribute
            WHERE attrelid = ${name}::text::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum`,
            (rows) => rows.map(({ attribute }) => attribute)
          )
        for (const [type, table] of [
          ["intent_row_17", "intents"],
          ["audit_row_17", "audit_log"]
        ] as const) {
          const [sent, columns] = [yield* attributes(type), yield* attributes(table)]
          assert.isAbove(sent.length, 10)
          assert.includeMembers([...columns], [...sent], type)
        }
      })
  )
})

it.live("when a column of a row holds any text, then the row has that text in that column", () =>
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const hostile = 'a","\\(b),{c}'
    const textsOf = (table: string) =>
      Effect.map(
        pg<{ readonly name: string }>`
          SELECT attname AS name FROM pg_attribute
          WHERE attrelid = ${table}::text::regclass AND atttypid = 'text'::regtype AND NOT attisdropped`,
        // A rule of the table allows three words only.
        (rows) => rows.map(({ name }) => name).filter((name) => name !== "usage_source")
      )
    const filled = (names: ReadonlyArray<string>) => Object.fromEntries(names.map((name) => [name, hostile]))
    const [intents, log] = [yield* textsOf("intents"), yield* textsOf("audit_log")]
    assert.isAbove(intents.length, 7)
    assert.isAbove(log.length, 8)
    const [opened, refused] = [intentRow(intentOf()), auditRow(refusalOf())]
    yield* insertIntents(pg, 30)([{ ...opened, ...filled(intents) }])
    yield* insertAudit(pg)([{ ...refused, ...filled(log) }])
    const [intent] = yield* pg`SELECT * FROM intents WHERE request_id = ${opened.request_id}::text::uuid`
    const [row] = yield* pg`SELECT * FROM audit_log WHERE request_id = ${refused.request_id}::text::uuid`
    assert.deepInclude(intent, filled(intents))
    assert.deepInclude(row, filled(log))
  }).pipe(Effect.provide(TestPostgres))
)

it.live("when a statement of the audit runs again and again, then Postgres does not plan it each time", () =>
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const [open, close, insert] = [insertIntents(pg, 30), closeIntents(pg), insertAudit(pg)]
    for (let n = 0; n < 12; n += 1) {
      const intents = Array.from({ length: 1 + (n % 3) }, () => intentOf())
      yield* open(intents.map(intentRow))
      yield* close(intents.map((intent) => auditRow(endOf(intent, usageOf(1, 1)))))
      yield* insert([auditRow(refusalOf())])
    }
    const plans = yield* pg<{ readonly generic: number; readonly custom: number }>`
        SELECT generic_plans::integer AS generic, custom_plans::integer AS custom FROM pg_prepared_statements
        WHERE statement LIKE '%_row_17[])%' AND statement NOT LIKE '%pg_prepared%'`
    assert.strictEqual(plans.length, 3)
    for (const { custom, generic } of plans) {
      assert.strictEqual(custom + generic, 12)
      assert.isAtMost(custom, 5)
    }
  }).pipe(Effect.provide(layerTestPostgres({ maxConnections: 1 })))
)
