/**
 * Rows of the database. A row of another form is named. The name of a column is that of its field in snake_case.
 */
import { Data, Effect, Predicate, Result, Schema, SchemaIssue } from "effect"
import { snakeCase } from "../domain/text.ts"
import type { SqlClient, Statement } from "effect/sql"
import { isFragment } from "effect/sql/Statement"

/** `row` says which it is: `tenant acme`. `problem` names the column, and not its value. */
export class UnreadableRow extends Data.TaggedError("UnreadableRow")<{
  readonly row: string
  readonly problem: string
}> {
  override get message(): string {
    return `${this.row} cannot be read: ${this.problem}`
  }
}

export type Row = Readonly<Record<string, unknown>>

/** A query. */
type Rows<E, R> = Effect.Effect<ReadonlyArray<Row>, E, R>

const issuesOf = SchemaIssue.makeFormatterStandardSchemaV1()

const problemOf = ({ issue }: Schema.SchemaError): string => {
  const [first] = issuesOf(issue).issues
  const [column = "", ...inside] = (first?.path ?? []).map(String)
  return [[snakeCase(column), ...inside].join("."), first?.message].join(": ")
}

/** Reads rows by a schema. `nameOf` is given a row that may have any form. */
export const makeRowReader = <A>(nameOf: (row: Row) => string, schema: Schema.Decoder<A>) => {
  const decode = Schema.decodeUnknownResult(schema)
  const one = (row: Row): Result.Result<A, UnreadableRow> =>
    Result.mapError(
      decode(row),
      (error) => new UnreadableRow({ row: nameOf(row), problem: problemOf(error) })
    )
  return {
    one,
    /** Fails when one of the rows cannot be read. */
    all: <E, R>(rows: Rows<E, R>): Effect.Effect<ReadonlyArray<A>, E | UnreadableRow, R> =>
      Effect.flatMap(rows, (found) => Effect.fromResult(Result.all(found.map(one)))),
    /** The first row; undefined when there is none. */
    first: <E, R>(rows: Rows<E, R>): Effect.Effect<A | undefined, E | UnreadableRow, R> =>
      Effect.flatMap(rows, ([row]) => (row === undefined ? Effect.undefined : Effect.fromResult(one(row))))
  }
}

/** Reads the only row of a query that always has one. */
export const oneRow = <F extends Schema.Struct.Fields>(fields: F) => {
  const decode = Schema.decodeUnknownEffect(Schema.Tuple([Schema.Struct(fields)]))
  return <E, R>(rows: Rows<E, R>) => Effect.map(Effect.flatMap(rows, decode), ([row]) => row)
}

/** `rpm, end_user_header`, for INSERT. */
export const columnsOf = (sql: SqlClient.SqlClient, fields: object): Statement.Fragment =>
  sql.literal(Object.keys(fields).map(snakeCase).join(", "))

/** `k.rpm AS "rpm", k.end_user_header AS "endUserHeader"`, for SELECT; `under` stands before the names of the result. */
export const selected = (
  sql: SqlClient.SqlClient,
  row: string,
  fields: object,
  under = ""
): Statement.Fragment =>
  sql.literal(
    Object.keys(fields)
      .map((field) => `${row}.${snakeCase(field)} AS "${under}${field}"`)
      .join(", ")
  )

/** An object is JSON. */
const parameter = (value: unknown): unknown =>
  Predicate.isObject(value) && !Array.isArray(value) && !isFragment(value) ? JSON.stringify(value) : value

/** `SET` of an UPDATE. */
export const assigned = (sql: SqlClient.SqlClient, values: object): Statement.Fragment =>
  sql.csv(
    Object.entries(values).map(
      ([field, value]) => sql`${sql.literal(snakeCase(field))} = ${parameter(value)}`
    )
  )

/** Columns and values of an INSERT; a value may be an expression. */
export const inserted = (sql: SqlClient.SqlClient, values: object): Statement.Fragment =>
  sql`(${columnsOf(sql, values)}) VALUES (${sql.csv(Object.values(values).map((value) => sql`${parameter(value)}`))})`
