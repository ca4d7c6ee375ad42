/**
 * Every migration after `minimumVersion` only adds (expand), so that older versions run on the schema: it is compared before
 * and after each one.
 */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrator from "effect/sql/Migrator"
import { knownVersion, migrations, minimumVersion } from "../../../src/infra/Migrations.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"

interface Column {
  readonly table: string
  readonly name: string
  readonly type: string
  readonly required: boolean
  readonly filled: boolean
}

interface Rule {
  readonly table: string
  /** p primary key, u unique, c check, f foreign key, x exclusion */
  readonly kind: string
  readonly columns: ReadonlyArray<string>
  readonly text: string
}

interface Shape {
  readonly columns: ReadonlyArray<Column>
  readonly rules: ReadonlyArray<Rule>
}

/** Rules that a migration replaced by a wider one: what an older version writes is still allowed. By migration. */
const widened: Readonly<Record<string, ReadonlyArray<string>>> = {}

const readShape = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const columns = yield* sql<Column>`
    SELECT c.relname::text AS table, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS type,
      a.attnotnull AS required, a.atthasdef OR a.attidentity <> '' AS filled
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
      AND a.attnum > 0 AND NOT a.attisdropped`
  // A rule that is not valid for old rows is one for new rows all the same. Not-null constraints are part of the columns. A unique index does what a unique constraint does.
  const rules = yield* sql<Rule>`
    SELECT c.relname::text AS table, r.contype::text AS kind, regexp_replace(pg_get_constraintdef(r.oid), ' NOT VALID$', '') AS text,
      ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY (r.conkey)) AS columns
    FROM pg_constraint r JOIN pg_class c ON c.oid = r.conrelid
    WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition AND r.contype <> 'n'
    UNION ALL
    SELECT c.relname::text, 'u', pg_get_indexdef(i.indexrelid),
      ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY (i.indkey::smallint[]))
    FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
    WHERE c.relnamespace = 'public'::regnamespace AND NOT c.relispartition AND i.indisunique
      AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid)`
  return { columns, rules }
})

const named = ({ table, name }: Column) => `${table}.${name}`
const isKey = ({ kind }: Rule) => kind === "p" || kind === "u"
const keyOf = ({ columns, table }: Rule) => `${table} (${columns.toSorted().join(", ")})`

/** Everything in `after` that statements written for `before` could fail on. */
const breaks = (before: Shape, after: Shape): ReadonlyArray<string> => {
  const found: Array<string> = []
  const now = new Map(after.columns.map((column) => [named(column), column]))
  const old = new Map(before.columns.map((column) => [named(column), column]))
  const oldTables = new Set(before.columns.map(({ table }) => table))
  for (const column of before.columns) {
    const same = now.get(named(column))
    if (same === undefined) found.push(`${named(column)} is gone`)
    else if (same.type !== column.type) found.push(`${named(column)} was ${column.type}, is ${same.type}`)
    else if (same.required && !column.required) found.push(`${named(column)} must not be null`)
    else if (column.filled && !same.filled) found.push(`${named(column)} has no default any more`)
  }
  for (const column of after.columns) {
    const isNew = oldTables.has(column.table) && !old.has(named(column))
    if (isNew && column.required && !column.filled) found.push(`${named(column)} is new and has no default`)
  }
  const keys = new Set(after.rules.filter(isKey).map(keyOf))
  for (const rule of before.rules.filter(isKey)) {
    if (!keys.has(keyOf(rule))) found.push(`${keyOf(rule)} is no longer unique`)
  }
  const oldRules = new Set(before.rules.map(({ table, text }) => `${table} ${text}`))
  for (const rule of after.rules) {
    const isOnOld = rule.columns.every((name) => old.has(`${rule.table}.${name}`))
    if (oldTables.has(rule.table) && isOnOld && !oldRules.has(`${rule.table} ${rule.text}`)) {
      found.push(`${rule.table} has a new rule: ${rule.text}`)
    }
  }
  return found
}

const emptySchema = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DROP SCHEMA public CASCADE`
  yield* sql`CREATE SCHEMA public`
})

const migrateTo = (version: number) =>
  Migrator.make({})({
    loader: Migrator.fromRecord(
      Object.fromEntries(Object.entries(migrations).filter(([name]) => Number(name.slice(0, 4)) <= version))
    ),
    table: "schema_migrations"
  })

it.live(
  "when a migration runs, then the statements of every version that may stay still fit the tables",
  () =>
    Effect.gen(function* () {
      yield* emptySchema
      yield* migrateTo(minimumVersion)
      let before: Shape = yield* readShape
      assert.isAbove(before.columns.length, 50)
      for (let version = minimumVersion + 1; version <= knownVersion; version += 1) {
        const name = Object.keys(migrations).find((one) => Number(one.slice(0, 4)) === version) ?? ""
        yield* migrateTo(version)
        const after: Shape = yield* readShape
        assert.deepStrictEqual(
          breaks(before, after).filter((text) => !widened[name]?.includes(text)),
          [],
          name
        )
        before = after
      }
    }).pipe(Effect.provide(TestPostgres))
)

it.live("when a statement removes or narrows something, then the comparison names it", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const before: Shape = yield* readShape
    const change = Effect.fnUntraced(function* (statement: string) {
      return yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql.unsafe(statement)
          return yield* Effect.fail(breaks(before, yield* readShape))
        })
      )
    })
    const seen = Effect.fnUntraced(function* (statement: string) {
      const result = yield* Effect.flip(change(statement))
      return Array.isArray(result) ? result.join("; ") : String(result)
    })
    for (const [statement, named] of [
      ["ALTER TABLE tenants ADD COLUMN of_a_test text", ""],
      ["ALTER TABLE tenants ADD COLUMN of_a_test text NOT NULL DEFAULT ''", ""],
      ["ALTER TABLE tenants ADD COLUMN of_a_test int CHECK (of_a_test > 0)", ""],
      ["CREATE TABLE more (id int PRIMARY KEY, name text NOT NULL)", ""],
      [
        "ALTER TABLE tenants ADD COLUMN of_a_test text NOT NULL",
        "tenants.of_a_test is new and has no default"
      ],
      ["ALTER TABLE tenants DROP COLUMN weight", "tenants.weight is gone"],
      ["ALTER TABLE tenants RENAME COLUMN weight TO share", "tenants.weight is gone"],
      ["ALTER TABLE prompt_log RENAME TO prompts", "prompt_log.request_id is gone"],
      ["ALTER TABLE tenants ALTER COLUMN weight TYPE bigint", "tenants.weight was integer, is bigint"],
      ["ALTER TABLE audit_log ALTER COLUMN queued_ms SET NOT NULL", "audit_log.queued_ms must not be null"],
      ["ALTER TABLE tenants ALTER COLUMN weight DROP DEFAULT", "tenants.weight has no default any more"],
      ["ALTER TABLE tenants ADD CHECK (weight < 9)", "tenants has a new rule: CHECK ((weight < 9))"],
      ["CREATE UNIQUE INDEX ON ledger (day)", "ledger has a new rule: CREATE UNIQUE INDEX"],
      [
        "ALTER TABLE audit_log DROP CONSTRAINT audit_log_pkey CASCADE",
        "audit_log (request_id) is no longer unique"
      ]
    ] as const) {
      const result = yield* seen(statement)
      if (named === "") assert.strictEqual(result, "", statement)
      else assert.include(result, named, statement)
    }
  }).pipe(Effect.provide(TestPostgres))
)
