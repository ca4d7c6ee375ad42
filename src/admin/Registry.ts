/**
 * Administration of tenants, keys, limits, budgets and models, and the totals of what they used.
 *
 * Every change is one transaction. It is in force on every gateway within about `KEY_FRESHNESS_MS`, because the gates poll
 * the state and do not depend on notifications. Only `createKey` and `rotateKey` return a key's secret, once.
 */
import { Context, Effect, Layer, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import { isSqlError } from "effect/sql/SqlError"
import { TimeZone } from "../domain/Calendar.ts"
import { scopes } from "../domain/Caller.ts"
import { defaultNamespace, mintKey, prefixOf } from "../domain/Key.ts"
import { type EffectiveLimits, type Period } from "../domain/Limits.ts"
import { KeyChange, KeyAttributes, newKey, newTenant, TenantChange } from "../domain/attributes.ts"
import { hashSecret } from "../gates/keys/SecretVerifier.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { assigned, columnsOf, inserted } from "../infra/rows.ts"
import type { SettingsValues } from "../Settings.ts"
import * as Errors from "./Errors.ts"
import {
  expiryOf,
  type KeyFilter,
  keysOf,
  liveNames,
  livePrefixes,
  namesOf,
  prefixOfName,
  readKeys
} from "./keys.ts"
import { modelAttributes, storedModels } from "./models.ts"
import { makeMoves } from "./moves.ts"
import { makeOwners } from "./owners.ts"
import { readUsage } from "./usage.ts"
import { makePersonalData } from "./personalData.ts"
import { readEndUsers, storedRules } from "./users.ts"
import { erasePrompts, readPrompts } from "./prompts.ts"
import * as Rows from "./rows.ts"
import * as Values from "./Values.ts"

const { withRegistryDown } = Errors

const encodeKey = Schema.encodeEffect(KeyChange)
const encodeTenant = Schema.encodeEffect(TenantChange)

export interface RegistryOptions {
  /** `KEY_NAMESPACE`; default tg_ */
  readonly namespace?: string
  /** the limits of a tenant that is created without them: `DEFAULT_RPM`, `DEFAULT_TPM`, `DEFAULT_CONCURRENT` */
  readonly defaults: EffectiveLimits
  /** for tests, which make hundreds of keys; default: `hashSecret` */
  readonly hash?: (secret: string) => Promise<string>
  /** for tests; default: a new random key of the namespace */
  readonly mint?: () => string
}

/** What all keys of an account have alike. */
const sharedFields = [...Rows.budgetFields, "userRules", "modelRules"] as const

/** argon2 runs on the threads of libuv, of which there are four. */
const hashesAtOnce = 4

/** Any number that no other advisory lock of the schema has. */
const createKeysLock = 7_309_455

/** There are 62^9 prefixes. Two collisions in a row mean a broken random source. */
const maxAttempts = 5

const make = Effect.fnUntraced(function* (options: RegistryOptions) {
  const sql = yield* SqlClient.SqlClient
  const calendar = yield* TimeZone
  const hashOf = options.hash ?? hashSecret
  const mint = options.mint ?? (() => mintKey(options.namespace ?? defaultNamespace))

  const keyInfo = Effect.fnUntraced(function* (prefix: string) {
    const row = yield* Rows.keyRows.first(
      sql`SELECT ${Rows.keyColumns(sql)} FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE k.prefix = ${prefix}`
    )
    return row ?? (yield* new Errors.UnknownKey({ prefix }))
  })

  const createTenant = Effect.fnUntraced(function* (tenant: Rows.NewTenant) {
    const name = yield* Values.validate("name", Values.name, tenant.name)
    const attributes = yield* storedModels(
      yield* Values.tenantChange({ ...newTenant, ...options.defaults, ...tenant })
    )
    const row = yield* Rows.tenantRows.first(sql`
        INSERT INTO tenants AS t ${inserted(sql, { name, ...(yield* encodeTenant(attributes)) })}
        ON CONFLICT (name) DO NOTHING RETURNING ${Rows.tenantColumns(sql)}`)
    return row ?? (yield* new Errors.DuplicateTenant({ tenant: name }))
  }, withRegistryDown)

  const listTenants = Effect.suspend(() =>
    Rows.tenantRows.all(sql`SELECT ${Rows.tenantColumns(sql)} FROM tenants t ORDER BY t.name`)
  ).pipe(withRegistryDown)

  /** Changes nothing when the row cannot be read. */
  const updateTenant = Effect.fnUntraced(function* (tenant: string, values: object) {
    if (Object.keys(values).length > 0) {
      yield* sql`UPDATE tenants SET ${assigned(sql, values)} WHERE name = ${tenant}`
    }
    return yield* Rows.readTenant(sql, tenant)
  }, sql.withTransaction)

  const changeTenant = Effect.fnUntraced(function* (tenant: string, change: TenantChange) {
    const attributes = yield* storedModels(yield* Values.tenantChange(change))
    return yield* updateTenant(tenant, yield* encodeTenant(attributes))
  }, withRegistryDown)

  const setModels = Effect.fnUntraced(
    function* (tenant: string, change: Rows.ModelsChange) {
      yield* Rows.requireTenant(sql, tenant, "FOR UPDATE")
      return yield* changeTenant(tenant, yield* modelAttributes(yield* Rows.readTenant(sql, tenant), change))
    },
    sql.withTransaction,
    withRegistryDown
  )

  /** Inserts a key with a new prefix. `insert` returns no row when the prefix is taken. */
  const insertKey = Effect.fnUntraced(function* <E>(
    insert: (prefix: string, hash: string) => Effect.Effect<ReadonlyArray<unknown>, E>
  ) {
    for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
      const secret = mint()
      const prefix = prefixOf(secret)
      const hash = yield* Effect.tryPromise(() => hashOf(secret))
      if ((yield* insert(prefix, hash)).length === 0) continue
      const key = yield* Effect.catchTag(
        keyInfo(prefix),
        "UnknownKey",
        (cause) => new Errors.RegistryDown({ cause })
      )
      return { secret, key }
    }
    return yield* new Errors.RegistryDown({ cause: new Error("no free key prefix was found") })
  })

  /** What a new key has beside its name, its prefix and its hash. */
  const newRow = Effect.fnUntraced(function* (key: Omit<Rows.NewKey, "name">) {
    return {
      tenantId: sql`(SELECT id FROM tenants WHERE name = ${key.tenant})`,
      scopes: yield* Values.validate("scopes", Values.scopeList, key.scopes ?? scopes),
      ...(yield* encodeKey(yield* Values.keyChange({ ...newKey, ...key }))),
      expiresAt: yield* expiryOf(sql, key, calendar)
    }
  })

  const nameOf = (name: string) => Values.validate("name", Values.name, name)

  /** `secret` is the full key. It is returned only here and is not stored. */
  const createKey = Effect.fnUntraced(
    function* (key: Rows.NewKey) {
      const row = { name: yield* nameOf(key.name), ...(yield* newRow(key)) }
      yield* Rows.lockTenant(sql, key.tenant)
      const [same] = key.allowDuplicate === true ? [] : yield* liveNames(sql, key.tenant, [row.name])
      if (same !== undefined) return yield* new Errors.DuplicateKey({ label: same.name, prefix: same.prefix })
      return yield* insertKey(
        (prefix, hash) => sql`
          INSERT INTO api_keys ${inserted(sql, { prefix, hash, ...row })}
          ON CONFLICT (prefix) DO NOTHING RETURNING id::text`
      )
    },
    sql.withTransaction,
    withRegistryDown
  )

  /** Those of the prefixes that belong to live keys. */
  const livingOf = (prefixes: ReadonlyArray<string>) => withRegistryDown(livePrefixes(sql, prefixes))

  /**
   * Makes a key for each name that has no live key in the tenant, in one transaction. `keep` stores the keys before the
   * commit, so that no key is in force whose text is lost; when it fails, no key is made. One `keep` runs at a time.
   */
  const createKeys = Effect.fnUntraced(function* <E>(
    keys: Rows.NewKeys,
    keep: (made: ReadonlyArray<Rows.MadeKey>, living: typeof livingOf) => Effect.Effect<void, E>
  ) {
    const { names: given, own, ...common } = keys
    const wanted = yield* withRegistryDown(
      Effect.gen(function* () {
        const names = yield* Effect.forEach(given, nameOf)
        yield* Rows.requireTenant(sql, keys.tenant)
        const live = new Set((yield* liveNames(sql, keys.tenant, names)).map(({ name }) => name))
        const row = yield* newRow(common)
        return yield* Effect.forEach(
          names.filter((name) => !live.has(name)),
          (name) => {
            const values = own?.get(name)
            return values === undefined
              ? Effect.succeed({ name, row })
              : Effect.map(newRow({ ...common, ...values }), (row) => ({ name, row }))
          }
        )
      })
    )
    // Before the transaction, because it takes long.
    const hashed = yield* Effect.forEach(
      wanted,
      (key) => {
        const secret = mint()
        return Effect.tryPromise({
          try: async () => ({ ...key, secret, prefix: prefixOf(secret), hash: await hashOf(secret) }),
          catch: (cause) => new Errors.RegistryDown({ cause })
        })
      },
      { concurrency: hashesAtOnce }
    )
    return yield* Effect.gen(function* () {
      // One at a time, so that no other `keep` meets keys that are stored and not yet in force.
      yield* sql`SELECT pg_advisory_xact_lock(${createKeysLock})`
      yield* Rows.lockTenant(sql, keys.tenant)
      const skipped = yield* liveNames(sql, keys.tenant, keys.names)
      const live = new Set(skipped.map(({ name }) => name))
      const made = hashed.filter(({ name }) => !live.has(name))
      for (const { hash, name, prefix, row } of made) {
        yield* sql`INSERT INTO api_keys ${inserted(sql, { prefix, hash, name, ...row })}`
      }
      yield* keep(made, livingOf)
      return { made, skipped }
    }).pipe(
      sql.withTransaction,
      Effect.catchIf(isSqlError, (cause) => new Errors.RegistryDown({ cause }))
    )
  })

  const copied = columnsOf(sql, KeyAttributes.fields)

  /**
   * Makes a new key with the name, scopes, attributes and lifetime of the old one. The lifetime starts now. Both keys have one
   * account: what one uses of limits and budgets, the other cannot use. With `graceMs` the old key ends after that time;
   * without it, the old key does not change.
   */
  const rotateKey = Effect.fnUntraced(
    function* (old: string, graceMs: number | undefined) {
      const grace =
        graceMs === undefined ? undefined : yield* Values.validate("grace", Values.lifetimeMs, graceMs)
      if (!(yield* Rows.lockAccount(sql, old))) return yield* new Errors.UnknownKey({ prefix: old })
      const made = yield* insertKey(
        (prefix, hash) => sql`
          INSERT INTO api_keys (prefix, hash, tenant_id, name, scopes, expires_at, budget_account, ${copied})
          SELECT ${prefix}, ${hash}, tenant_id, name, scopes, now() + (expires_at - created_at),
            ${accountOf(sql, "api_keys")}, ${copied}
          FROM api_keys WHERE prefix = ${old}
          ON CONFLICT (prefix) DO NOTHING RETURNING id::text`
      )
      if (grace !== undefined) {
        // Never later than its own end.
        yield* sql`
          UPDATE api_keys SET expires_at = least(expires_at, now() + ${grace}::float8 * interval '1 millisecond')
          WHERE prefix = ${old}`
      }
      return { ...made, replaced: yield* keyInfo(old) }
    },
    sql.withTransaction,
    withRegistryDown
  )

  const listKeys = (tenant?: string, filter: KeyFilter = {}) =>
    withRegistryDown(
      tenant === undefined
        ? readKeys(sql, keysOf(sql, filter), calendar)
        : Effect.andThen(
            Rows.requireTenant(sql, tenant),
            readKeys(sql, sql`t.name = ${tenant} AND ${keysOf(sql, filter)}`, calendar)
          )
    )

  /** Idempotent. `already`: whether it was revoked before. */
  const revokeKey = Effect.fnUntraced(
    function* (prefix: string) {
      const found = yield* sql`SELECT 1 FROM api_keys WHERE prefix = ${prefix} FOR UPDATE`
      if (found.length === 0) return yield* new Errors.UnknownKey({ prefix })
      // A trigger on this table does the whole revocation.
      const written = yield* sql`
        INSERT INTO revocations (key_prefix)
        SELECT prefix FROM api_keys WHERE prefix = ${prefix} AND status <> 'revoked' RETURNING id`
      return { already: written.length === 0 }
    },
    sql.withTransaction,
    withRegistryDown
  )

  const setKeyEnabled = Effect.fnUntraced(function* (prefix: string, enabled: boolean) {
    yield* sql`
      UPDATE api_keys SET status = ${enabled ? "active" : "disabled"} WHERE prefix = ${prefix} AND status <> 'revoked'`
    const key = yield* keyInfo(prefix)
    return key.status === "revoked" ? yield* new Errors.RevokedKey({ prefix }) : key
  }, withRegistryDown)

  /** Budgets, and rules of end users and models, change for all keys that share the account of the key. */
  const changeKey = Effect.fnUntraced(
    function* (prefix: string, given: KeyChange) {
      const checked = yield* Values.keyChange(given)
      const before = yield* keyInfo(prefix)
      const change = { ...checked, ...(yield* storedRules(sql, before, checked)) }
      const values = yield* encodeKey(change)
      yield* Values.usersOf({ ...before, ...change }, change)
      const [shared, own] = [Struct.pick(values, sharedFields), Struct.omit(values, sharedFields)]
      if (Object.keys(shared).length > 0) {
        yield* Rows.lockAccount(sql, prefix)
        yield* sql`
          UPDATE api_keys SET ${assigned(sql, shared)}
          WHERE ${accountOf(sql, "api_keys")} = (SELECT ${accountOf(sql, "k")} FROM api_keys k WHERE k.prefix = ${prefix})`
      }
      if (Object.keys(own).length > 0) {
        yield* sql`UPDATE api_keys SET ${assigned(sql, own)} WHERE prefix = ${prefix}`
      }
      return yield* keyInfo(prefix)
    },
    sql.withTransaction,
    withRegistryDown
  )

  const showKey = Effect.fnUntraced(function* (prefix: string) {
    const [key] = yield* readKeys(sql, sql`k.prefix = ${prefix}`, calendar)
    return key ?? (yield* new Errors.UnknownKey({ prefix }))
  }, withRegistryDown)

  /** Runs changes in one transaction: all of them are in force, or none is. */
  const atomically = <A, E>(changes: Effect.Effect<A, E>): Effect.Effect<A, E | Errors.RegistryDown> =>
    Effect.mapError(sql.withTransaction(changes), (error): E | Errors.RegistryDown =>
      isSqlError(error) ? new Errors.RegistryDown({ cause: error }) : error
    )

  return {
    createTenant,
    listTenants,
    showTenant: (tenant: string) => withRegistryDown(Rows.readTenant(sql, tenant)),
    changeTenant,
    setTenantEnabled: (tenant: string, enabled: boolean) =>
      withRegistryDown(updateTenant(tenant, { disabled: !enabled })),
    ...makeMoves(sql),
    setModels,
    /** From the ledger, of the current periods. */
    usage: (tenant: string, period: Period) => withRegistryDown(readUsage(sql, tenant, period, calendar)),
    createKey,
    createKeys,
    rotateKey,
    /** The keys of a tenant, or of all tenants, by name. */
    listKeys,
    showKey,
    namesOf: (prefixes: ReadonlyArray<string>) => withRegistryDown(namesOf(sql, prefixes)),
    prefixOfName: (name: string) => withRegistryDown(prefixOfName(sql, name)),
    revokeKey,
    setKeyEnabled,
    changeKey,
    ...makeOwners(sql, calendar, { keyInfo, showKey, changeKey, changeTenant }),
    endUsers: Effect.fnUntraced(function* (prefix: string, user: string) {
      return yield* readEndUsers(sql, yield* keyInfo(prefix), user)
    }, Errors.withRegistryDownAfter("40 seconds")),
    ...makePersonalData(sql),
    atomically,
    /** The newest `limit` of the key's logged prompts, newest first; `sinceMs` looks back from now. */
    showPromptLog: Effect.fnUntraced(function* (prefix: string, which: Parameters<typeof readPrompts>[2]) {
      yield* keyInfo(prefix)
      return yield* readPrompts(sql, prefix, which)
    }, withRegistryDown),
    /** Deletes all logged prompts of the key, and returns their number. No deadline for all of it. */
    erasePromptLog: (prefix: string) =>
      Effect.andThen(withRegistryDown(keyInfo(prefix)), erasePrompts(sql, prefix))
  }
})

export class Registry extends Context.Service<Registry>()("tollgate/admin/Registry", { make }) {}

export const layerPostgres = (options: RegistryOptions): Layer.Layer<Registry, never, SqlClient.SqlClient> =>
  Layer.effect(Registry, make(options))

/** The registry as the settings have it. */
export const layerFromSettings = (
  settings: Pick<SettingsValues, "keyNamespace" | "defaultRpm" | "defaultTpm" | "defaultConcurrent">
) =>
  layerPostgres({
    namespace: settings.keyNamespace,
    defaults: { rpm: settings.defaultRpm, tpm: settings.defaultTpm, concurrent: settings.defaultConcurrent }
  })
