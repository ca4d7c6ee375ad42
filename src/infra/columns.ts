/** Columns of tables: a struct of fields says how a column is read and written, and which type it has in Postgres. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Schema, SchemaAST } from "effect"

export const uuid = Schema.String.annotate({ postgres: "uuid" })
export const text = Schema.String.annotate({ postgres: "text" })
/** ISO 8601 */
export const time = Schema.flip(Schema.DateFromString).annotate({ postgres: "timestamptz" })
/** `2026-11-23` */
export const date = Schema.String.annotate({ postgres: "date" })
export const flag = Schema.Boolean.annotate({ postgres: "boolean" })
export const tokens = Schema.Finite.annotate({ postgres: "bigint" })
export const integer = Schema.Finite.annotate({ postgres: "integer" })

/** The type of a column, which may be nullable. */
const typeOf = (ast: SchemaAST.AST): string | undefined => {
  const [first] = SchemaAST.isUnion(ast) ? ast.types : []
  return SchemaAST.resolveAt<string>("postgres")(ast) ?? (first && typeOf(first))
}

/** The parts of statements that write rows. A batch of rows is one jsonb document. */
export const columnsOf = <F extends Schema.Struct.Fields>({ fields }: Schema.Struct<F>) => {
  const names = Object.keys(fields)
  const typed = Object.entries(fields).map(([name, { ast }]) => `${name} ${typeOf(ast)}`)
  return (pg: PgClient.PgClient) => ({
    names: pg.literal(names.join(", ")),
    values: pg.literal(names.map((name) => `r.${name}`).join(", ")),
    /** the rows in the order of their ids: two batches with the same requests lock them in the same order */
    sorted: (rows: ReadonlyArray<Schema.Struct<F>["Type"]>) =>
      pg`SELECT * FROM jsonb_to_recordset(${pg.json(rows)}) AS r(${pg.literal(typed.join(", "))}) ORDER BY request_id`
  })
}

/** The driver reads these as other types than the schemas do. */
const casts: Readonly<Record<string, string>> = { uuid: "::text", bigint: "::float8", date: "::text" }

/** Columns of `row` for SELECT. `instead`: what is read in place of a column. */
export const readColumns = (
  row: string,
  fields: Schema.Struct.Fields,
  instead: Readonly<Record<string, string>> = {}
): string =>
  Object.entries(fields)
    .map(
      ([name, { ast }]) =>
        `(${instead[name] ?? `${row}.${name}`})${casts[typeOf(ast) ?? ""] ?? ""} AS ${name}`
    )
    .join(", ")
