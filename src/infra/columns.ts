/** SQL for the columns of a list of fields. The name of a column is that of its field in snake_case. */
import { Predicate } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { isFragment } from "effect/sql/Statement"
import { snakeCase } from "../domain/text.ts"

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
