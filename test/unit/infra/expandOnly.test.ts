/**
 * Every migration after `minimumVersion` only adds (expand), so that older versions run on the schema: it is compared before
 * and after each one.
 */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import * as Migrator from "effect/sql/Migrator"
import { migrations, minimumVersion } from "../../../src/infra/Migrations.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

interface Fact {
  readonly table: string
  readonly fact: string
}

interface Shape {
  /** what old statements need, and what must stay: columns with their types and defaults, unique columns */
  readonly needed: ReadonlyArray<Fact>
  /** what refuses rows: rules, unique columns, columns that must be written */
  readonly refusing: ReadonlyArray<Fact>
}

const readShape = Effect.gen(function* () {
  const columns = yield* sql<{
    readonly table: string
    readonly column: string
    readonly required: boolean
    readonly filled: boolean
  }>`
    SELECT c.relname::text AS table, a.attname || ' ' || format_type(a.atttypid, a.atttypmod) AS column,
      a.attnotnull AS required, a.atthasdef OR a.attidentity <> '' AS filled
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
      AND a.attnum > 0 AND NOT a.attisdropped`
  // A rule of new columns only does not concern what an old version writes: NULL passes a check.
  const rules = yield* sql<{ readonly table: string; readonly rule: string; readonly columns: string }>`
    SELECT conrelid::regclass::text AS table, pg_get_constraintdef(oid) AS rule,
      ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY (conkey) ORDER BY 1)::text AS columns
    FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f', 'x')
      AND NOT (SELECT relispartition FROM pg_class WHERE oid = conrelid)`
  const unique = yield* sql<Fact>`
    SELECT indrelid::regclass::text AS table, 'unique ' || ARRAY(
      SELECT attname FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey::smallint[]) ORDER BY 1)::text AS fact
    FROM pg_index JOIN pg_class c ON c.oid = indrelid
    WHERE indisunique AND c.relnamespace = 'public'::regnamespace AND NOT c.relispartition`
  return {
    needed: [
      ...columns.map(({ column, table }) => ({ table, fact: column })),
      ...columns
        .filter(({ filled }) => filled)
        .map(({ column, table }) => ({ table, fact: `${column} default` })),
      ...unique
    ],
    refusing: [
      ...columns
        .filter(({ filled, required }) => required && !filled)
        .map(({ column, table }) => ({ table, fact: `${column} not null` })),
      ...rules.map(({ columns, rule, table }) => ({ table, fact: `${columns} ${rule}` })),
      ...unique
    ]
  } satisfies Shape
})

const textOf = ({ fact, table }: Fact) => `${table}: ${fact}`

/** Everything in `after` that statements written for `before` could fail on. */
const breaks = (before: Shape, after: Shape): ReadonlyArray<string> => {
  const tables = new Set(before.needed.map(({ table }) => table))
  const names = new Set(before.needed.map(({ fact, table }) => `${table}: ${fact.split(" ")[0]}`))
  const [kept, known] = [new Set(after.needed.map(textOf)), new Set(before.refusing.map(textOf))]
  const isOnOld = ({ fact, table }: Fact) =>
    !fact.startsWith("{") ||
    fact
      .slice(1, fact.indexOf("}"))
      .split(",")
      .every((name) => names.has(`${table}: ${name}`))
  return [
    ...before.needed
      .map(textOf)
      .filter((text) => !kept.has(text))
      .map((text) => `gone: ${text}`),
    ...after.refusing
      .filter((fact) => tables.has(fact.table) && isOnOld(fact) && !known.has(textOf(fact)))
      .map((fact) => `new: ${textOf(fact)}`)
  ]
}

const test = testWith(it.live, TestPostgres)

test("when a migration runs, then the statements of every version that may stay still fit the tables", function* () {
  yield* sql`DROP SCHEMA public CASCADE`
  yield* sql`CREATE SCHEMA public`
  let before: Shape | undefined
  for (const [name, migration] of Object.entries(migrations)) {
    yield* Migrator.make({})({
      loader: Migrator.fromRecord({ [name]: migration }),
      table: "schema_migrations"
    })
    const after: Shape = yield* readShape
    assert.isAbove(after.needed.length, 50)
    if (before !== undefined) assert.deepStrictEqual(breaks(before, after), [], name)
    if (Number(name.slice(0, 4)) >= minimumVersion) before = after
  }
})
