/** End users of a key: the names that the audit has, and the rules of single ones. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { KeyChange } from "../domain/attributes.ts"
import { endUserOf, hashedUser } from "../domain/EndUser.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { makeRowReader } from "../infra/rows.ts"
import { UnknownKey } from "./Errors.ts"
import { type KeyInfo, keyNamed, largeRead } from "./rows.ts"

/** The name of an end user as the audit has it, for a row `k` of `api_keys` that stores hashes (`hashedUser`). */
export const hashedIn = (sql: SqlClient.SqlClient, name: string | Statement.Fragment): Statement.Fragment =>
  sql`'sha256:' || left(encode(sha256(convert_to(${accountOf(sql, "k")}::text || chr(10) || ${name}, 'UTF8')), 'hex'), 32)`

/** Whether a row `a` of the audit is of this end user of a row `k` of `api_keys`, whether that stores names or hashes. */
export const isUser = (sql: SqlClient.SqlClient, user: string): Statement.Fragment => {
  const name = endUserOf(user) ?? user
  return sql`(a.end_user IN (${user}, ${name}) OR a.end_user = ${hashedIn(sql, name)})`
}

const Owner = Schema.Struct({ account: Schema.String, hashUsers: Schema.Boolean })

/** Whose users they are, and how their names are stored. */
export const readUsersOwner = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, prefix: string) {
  const owner = yield* makeRowReader(() => keyNamed(prefix), Owner).first(
    sql`SELECT ${accountOf(sql, "k")}::text AS account, k.hash_users AS "hashUsers" FROM api_keys k WHERE k.prefix = ${prefix}`
  )
  return owner ?? (yield* new UnknownKey({ prefix }))
})

/** A name as the audit stores it. One that is a hash stays. */
export const storedUser = ({ account, hashUsers }: typeof Owner.Type, user: string): string => {
  const name = endUserOf(user) ?? ""
  return hashUsers && name !== "" && !/^sha256:[0-9a-f]{32}$/.test(name) ? hashedUser(account, name) : name
}

/** A row `a` of the audit, of a key that shares its account with this one. */
export const ofAccount = (sql: SqlClient.SqlClient, prefix: string) =>
  sql`a.key_id IN (SELECT o.id FROM api_keys p JOIN api_keys o ON ${accountOf(sql, "o")} = ${accountOf(sql, "p")} WHERE p.prefix = ${prefix})`

/** Names that are compared. */
const mostNames = 10_000

const names = makeRowReader(() => "an end user", Schema.Struct({ name: Schema.String }))

/** The end users that the key's account had in the last month, by their stored names. */
const recentUsers = (sql: SqlClient.SqlClient, prefix: string) =>
  largeRead(sql)(
    30,
    Effect.map(
      names.all(sql`
        SELECT DISTINCT a.end_user AS name FROM audit_log a
        WHERE ${ofAccount(sql, prefix)} AND a.arrived_at > now() - interval '31 days' AND a.end_user IS NOT NULL
        LIMIT ${mostNames}`),
      (rows) => rows.map(({ name }) => name)
    )
  )

/** Rules have the names that the audit stores: they are hashed when the key begins to store hashes. */
export const storedRules = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  before: KeyInfo,
  given: KeyChange
) {
  const rules = given.userRules ?? (given.hashUsers === true ? before.userRules : [])
  if (rules.length === 0) return {}
  const owner = {
    ...(yield* readUsersOwner(sql, before.prefix)),
    ...Struct.pick({ ...before, ...given }, ["hashUsers"])
  }
  return { userRules: rules.map((rule) => ({ ...rule, name: storedUser(owner, rule.name) })) }
})

/** The name of an end user of a key as it is stored, and all names that are known. */
export const readEndUsers = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  { prefix, userRules }: KeyInfo,
  user: string
) {
  const stored = storedUser(yield* readUsersOwner(sql, prefix), user)
  const named = userRules.map(({ name }) => name)
  return { stored, known: [...new Set([...named, ...(yield* recentUsers(sql, prefix))])] }
})
