/** Columns of tables: a struct of fields says how a column is read and written, and which type it has in Postgres. */
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Result, Schema, SchemaAST } from "effect"
import { Statement } from "effect/sql"

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

const { OID } = PgTypes
const oids: Readonly<Record<string, number>> = {
  uuid: OID.uuid,
  text: OID.text,
  date: OID.date,
  boolean: OID.bool,
  integer: OID.int4,
  bigint: OID.int8,
  timestamptz: OID.timestamptz
}

/** A value as the driver takes it. */
const sent = (value: unknown, oid: number): unknown => {
  if (value === null) return null
  if (oid === OID.int8) return BigInt(Number(value))
  return oid === OID.timestamptz ? Date.parse(String(value)) : value
}

const { fragment, literal, parameter } = Statement

/**
 * The parts of statements that write rows. A batch of rows is a list for each column, in binary, which takes Postgres half the time of
 * JSON. The lists come from a subquery: Postgres plans a statement anew each time when it knows how long its lists are.
 */
export const columnsOf = <F extends Schema.Struct.Fields>({ fields }: Schema.Struct<F>) => {
  const columns = Object.entries(fields).map(([name, { ast }]) => ({
    name,
    oid: oids[typeOf(ast) ?? ""] ?? OID.text
  }))
  const of = (row: string) => columns.map(({ name }) => row + name).join(", ")
  const from = literal(` OFFSET 0) lists, unnest(${of("lists.")}) AS r(${of("")}) ORDER BY r.request_id`)
  return {
    names: fragment([literal(of(""))]),
    values: fragment([literal(of("r."))]),
    /** the rows in the order of their ids: two batches with the same requests lock them in the same order */
    sorted: (rows: ReadonlyArray<Schema.Struct<F>["Type"]>) =>
      fragment([
        ...columns.flatMap(({ name, oid }, i) => {
          const list = PgTypes.array(
            rows.map((row) => sent(Reflect.get(row, name), oid)),
            oid
          )
          return [
            literal(i === 0 ? "SELECT r.* FROM (SELECT " : ", "),
            parameter(Result.getOrThrow(list)),
            literal(` AS ${name}`)
          ]
        }),
        from
      ])
  }
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
