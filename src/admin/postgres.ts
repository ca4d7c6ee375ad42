/** The registry on Postgres. A key without `scopes` gets all of them. */
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { isSqlError } from "effect/sql/SqlError"
import { scopes } from "../domain/Caller.ts"
import { defaultNamespace, mintKey, prefixOf } from "../domain/Key.ts"
import { type EffectiveLimits, type Period } from "../domain/Limits.ts"
import { hashSecret } from "../gates/keys/SecretVerifier.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { daysOf, inPeriod } from "../ledger/periods.ts"
import type { SettingsValues } from "../Settings.ts"
import { DuplicateTenant, RegistryDown, RevokedKey, UnknownKey, UnknownTenant } from "./Errors.ts"
import {
  lockAccount,
  orKeep,
  readBudgets,
  readTenantBudgets,
  writeBudgets,
  writeTenantBudgets
} from "./budgets.ts"
import { expiryOf } from "./expiry.ts"
import { writeModels } from "./models.ts"
import { readKey, readKeys } from "./keys.ts"
import { erasePrompts, readPrompts } from "./prompts.ts"
import { Registry } from "./Registry.ts"
import { withRegistryDown } from "./registryDown.ts"
import { keyOf, keyRows, tenantOf, tenantRows, usageRows } from "./rows.ts"
import * as Values from "./Values.ts"

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

/** There are 62^9 prefixes. Two collisions in a row mean a broken random source. */
const maxAttempts = 5

const make = Effect.fnUntraced(function* (options: RegistryOptions) {
  const sql = yield* SqlClient.SqlClient
  const hashOf = options.hash ?? hashSecret
  const mint = options.mint ?? (() => mintKey(options.namespace ?? defaultNamespace))

  const tenantColumns = sql`name, rpm, tpm, concurrent, weight, allow_all_models, allowed_models, model_aliases, disabled, created_at`
  const keyColumns = sql`k.prefix, k.name, t.name AS tenant, k.scopes, k.created_at, k.expires_at, k.rpm, k.tpm,
    k.concurrent, k.priority, k.end_user_header, k.prompt_log, k.prompt_log_days,
    CASE WHEN k.status = 'active' AND k.expires_at <= now() THEN 'expired' ELSE k.status END AS status`

  const oneTenant = (name: string, rows: ReadonlyArray<unknown>) =>
    Effect.gen(function* () {
      const [row] = yield* tenantRows(rows)
      return row === undefined ? yield* new UnknownTenant({ tenant: name }) : tenantOf(row)
    })
  const oneKey = (prefix: string, rows: ReadonlyArray<unknown>) =>
    Effect.gen(function* () {
      const [row] = yield* keyRows(rows)
      return row === undefined ? yield* new UnknownKey({ prefix }) : keyOf(row)
    })

  const showTenant = (tenant: string) =>
    Effect.flatMap(sql`SELECT ${tenantColumns} FROM tenants WHERE name = ${tenant}`, (rows) =>
      oneTenant(tenant, rows)
    )
  const showKey = (prefix: string) =>
    Effect.flatMap(
      sql`SELECT ${keyColumns} FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE k.prefix = ${prefix}`,
      (rows) => oneKey(prefix, rows)
    )

  const limitOr = <A>(field: string, given: number | undefined, otherwise: A) =>
    given === undefined ? Effect.succeed(otherwise) : Values.validate(field, Values.limit, given)
  const limitOrNull = (field: string, given: number | null | undefined) =>
    given === undefined || given === null
      ? Effect.succeed(given)
      : Values.validate(field, Values.limit, given)

  const createTenant = Effect.fnUntraced(function* (
    tenant: Parameters<Registry["Service"]["createTenant"]>[0]
  ) {
    const name = yield* Values.validate("name", Values.name, tenant.name)
    const rpm = yield* limitOr("rpm", tenant.rpm, options.defaults.rpm)
    const tpm = yield* limitOr("tpm", tenant.tpm, options.defaults.tpm)
    const concurrent = yield* limitOr("concurrent", tenant.concurrent, options.defaults.concurrent)
    const rows = yield* sql`
      INSERT INTO tenants (name, rpm, tpm, concurrent, allow_all_models)
      VALUES (${name}, ${rpm}, ${tpm}, ${concurrent}, ${tenant.allowAllModels ?? false})
      ON CONFLICT (name) DO NOTHING RETURNING ${tenantColumns}`
    const [row] = yield* tenantRows(rows)
    return row === undefined ? yield* new DuplicateTenant({ tenant: name }) : tenantOf(row)
  }, withRegistryDown)

  const listTenants = Effect.suspend(() => sql`SELECT ${tenantColumns} FROM tenants ORDER BY name`).pipe(
    Effect.flatMap(tenantRows),
    Effect.map((rows) => rows.map(tenantOf)),
    withRegistryDown
  )

  const setTenantLimits = Effect.fnUntraced(function* (
    tenant: string,
    limits: Parameters<Registry["Service"]["setTenantLimits"]>[1]
  ) {
    const rpm = yield* limitOr("rpm", limits.rpm, null)
    const tpm = yield* limitOr("tpm", limits.tpm, null)
    const concurrent = yield* limitOr("concurrent", limits.concurrent, null)
    const weight =
      limits.weight === undefined ? null : yield* Values.validate("weight", Values.weight, limits.weight)
    const rows = yield* sql`
      UPDATE tenants SET rpm = coalesce(${rpm}::int, rpm), tpm = coalesce(${tpm}::int, tpm),
        concurrent = coalesce(${concurrent}::int, concurrent), weight = coalesce(${weight}::int, weight)
      WHERE name = ${tenant} RETURNING ${tenantColumns}`
    return yield* oneTenant(tenant, rows)
  }, withRegistryDown)

  const setTenantEnabled = Effect.fnUntraced(function* (tenant: string, enabled: boolean) {
    const rows = yield* sql`
      UPDATE tenants SET disabled = ${!enabled} WHERE name = ${tenant} RETURNING ${tenantColumns}`
    return yield* oneTenant(tenant, rows)
  }, withRegistryDown)

  const setModels = (tenant: string, change: Parameters<Registry["Service"]["setModels"]>[1]) =>
    withRegistryDown(
      Effect.flatMap(writeModels(sql, tenantColumns, tenant, change), (rows) => oneTenant(tenant, rows))
    )

  const usage = Effect.fnUntraced(function* (tenant: string, period: Period) {
    yield* showTenant(tenant)
    const rows = yield* sql`
      WITH at AS MATERIALIZED (${daysOf(sql, sql`now()`)})
      SELECT coalesce(sum(l.requests), 0)::float8 AS requests,
        coalesce(sum(l.tokens_in), 0)::float8 AS tokens_in,
        coalesce(sum(l.tokens_out), 0)::float8 AS tokens_out
      FROM at CROSS JOIN ledger l JOIN tenants t ON t.id = l.tenant_id
      WHERE t.name = ${tenant} AND ${inPeriod(sql, period, "l.day")}`
    const [row] = yield* usageRows(rows)
    return {
      requests: row?.requests ?? 0,
      tokensIn: row?.tokens_in ?? 0,
      tokensOut: row?.tokens_out ?? 0
    }
  }, withRegistryDown)

  /** Inserts a key with a new prefix. `insert` returns no row when the prefix is taken. */
  const insertKey = Effect.fnUntraced(function* <E>(
    insert: (prefix: string, hash: string) => Effect.Effect<ReadonlyArray<unknown>, E>
  ) {
    for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
      const secret = mint()
      const prefix = prefixOf(secret)
      const hash = yield* Effect.tryPromise(() => hashOf(secret))
      if ((yield* insert(prefix, hash)).length === 0) continue
      const key = yield* showKey(prefix).pipe(
        Effect.catchTag("UnknownKey", (cause) => Effect.fail(new RegistryDown({ cause })))
      )
      return { secret, key }
    }
    return yield* new RegistryDown({ cause: new Error("no free key prefix was found") })
  })

  const createKey = Effect.fnUntraced(function* (key: Parameters<Registry["Service"]["createKey"]>[0]) {
    const name = yield* Values.validate("name", Values.name, key.name)
    const granted = yield* Values.validate("scopes", Values.scopeList, key.scopes ?? scopes)
    const rpm = yield* limitOr("rpm", key.rpm, null)
    const tpm = yield* limitOr("tpm", key.tpm, null)
    const concurrent = yield* limitOr("concurrent", key.concurrent, null)
    const priority = yield* Values.validate("priority", Values.priority, key.priority ?? "interactive")
    const header =
      key.endUserHeader === undefined
        ? null
        : yield* Values.validate("end-user-header", Values.endUserHeader, key.endUserHeader)
    const expiresAt = yield* expiryOf(sql, key)
    yield* showTenant(key.tenant)
    return yield* insertKey(
      (prefix, hash) => sql`
        INSERT INTO api_keys (tenant_id, name, prefix, hash, scopes, expires_at, rpm, tpm, concurrent, priority,
          end_user_header)
        SELECT id, ${name}, ${prefix}, ${hash}, string_to_array(${[...new Set(granted)].join(",")}, ','),
          ${expiresAt}, ${rpm}::int, ${tpm}::int, ${concurrent}::int, ${priority}, ${header}::text
        FROM tenants WHERE name = ${key.tenant}
        ON CONFLICT (prefix) DO NOTHING RETURNING id::text`
    )
  }, withRegistryDown)

  const rotateKey = Effect.fnUntraced(function* (given: string, graceMs: number | undefined) {
    const old = yield* Values.validate("prefix", Values.prefix, given)
    const grace =
      graceMs === undefined ? undefined : yield* Values.validate("grace", Values.lifetimeMs, graceMs)
    return yield* sql.withTransaction(
      Effect.gen(function* () {
        if (!(yield* lockAccount(sql, old))) return yield* new UnknownKey({ prefix: old })
        const made = yield* insertKey(
          (prefix, hash) => sql`
            INSERT INTO api_keys (tenant_id, name, prefix, hash, scopes, expires_at, rpm, tpm, concurrent, priority,
              budget_account, budget_daily, budget_monthly, budget_total, end_user_header, prompt_log, prompt_log_days)
            SELECT tenant_id, name, ${prefix}, ${hash}, scopes, now() + (expires_at - created_at), rpm, tpm,
              concurrent, priority, ${accountOf(sql, "api_keys")}, budget_daily, budget_monthly, budget_total, end_user_header, prompt_log,
              prompt_log_days
            FROM api_keys WHERE prefix = ${old}
            ON CONFLICT (prefix) DO NOTHING RETURNING id::text`
        )
        if (grace !== undefined) {
          // Never later than its own end.
          yield* sql`
            UPDATE api_keys SET expires_at = least(expires_at, now() + ${grace}::float8 * interval '1 millisecond')
            WHERE prefix = ${old}`
        }
        return { ...made, replaced: yield* showKey(old) }
      })
    )
  }, withRegistryDown)

  const listKeys = Effect.fnUntraced(function* (tenant?: string) {
    if (tenant !== undefined) yield* showTenant(tenant)
    return yield* readKeys(sql, keyColumns, tenant)
  }, withRegistryDown)

  const revokeKey = Effect.fnUntraced(function* (given: string) {
    const prefix = yield* Values.validate("prefix", Values.prefix, given)
    return yield* sql.withTransaction(
      Effect.gen(function* () {
        const found = yield* sql`SELECT 1 FROM api_keys WHERE prefix = ${prefix} FOR UPDATE`
        if (found.length === 0) return yield* new UnknownKey({ prefix })
        // A trigger on this table does the whole revocation.
        const written = yield* sql`
          INSERT INTO revocations (key_prefix)
          SELECT prefix FROM api_keys WHERE prefix = ${prefix} AND status <> 'revoked' RETURNING id`
        return { already: written.length === 0 }
      })
    )
  }, withRegistryDown)

  /** Runs one UPDATE of the key and returns the changed key. */
  const change = Effect.fnUntraced(function* (
    given: string,
    update: (prefix: string) => Effect.Effect<ReadonlyArray<unknown>, unknown>
  ) {
    const prefix = yield* Values.validate("prefix", Values.prefix, given)
    return yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* update(prefix).pipe(Effect.mapError((cause) => new RegistryDown({ cause })))
        return yield* showKey(prefix)
      })
    )
  })

  const setKeyEnabled = Effect.fnUntraced(function* (given: string, enabled: boolean) {
    const status = enabled ? "active" : "disabled"
    const key = yield* change(
      given,
      (prefix) =>
        sql`UPDATE api_keys SET status = ${status} WHERE prefix = ${prefix} AND status <> 'revoked' RETURNING id`
    )
    if (key.status === "revoked") return yield* new RevokedKey({ prefix: key.prefix })
    return key
  }, withRegistryDown)

  const setKeyLimits = Effect.fnUntraced(function* (
    given: string,
    limits: Parameters<Registry["Service"]["setKeyLimits"]>[1]
  ) {
    const rpm = orKeep(yield* limitOrNull("rpm", limits.rpm))
    const tpm = orKeep(yield* limitOrNull("tpm", limits.tpm))
    const concurrent = orKeep(yield* limitOrNull("concurrent", limits.concurrent))
    const priority =
      limits.priority === undefined
        ? null
        : yield* Values.validate("priority", Values.priority, limits.priority)
    return yield* change(
      given,
      (prefix) => sql`
        UPDATE api_keys SET
          rpm = CASE WHEN ${rpm.given}::boolean THEN ${rpm.value}::int ELSE rpm END,
          tpm = CASE WHEN ${tpm.given}::boolean THEN ${tpm.value}::int ELSE tpm END,
          concurrent = CASE WHEN ${concurrent.given}::boolean THEN ${concurrent.value}::int ELSE concurrent END,
          priority = coalesce(${priority}, priority)
        WHERE prefix = ${prefix} RETURNING id`
    )
  }, withRegistryDown)

  const setEndUserHeader = Effect.fnUntraced(function* (given: string, wish: string | null) {
    const header = wish === null ? null : yield* Values.validate("header", Values.endUserHeader, wish)
    return yield* change(
      given,
      (prefix) =>
        sql`UPDATE api_keys SET end_user_header = ${header}::text WHERE prefix = ${prefix} RETURNING id`
    )
  }, withRegistryDown)

  const setPromptLog = Effect.fnUntraced(function* (
    given: string,
    wish: Parameters<Registry["Service"]["setPromptLog"]>[1]
  ) {
    const days =
      wish.retentionDays === undefined
        ? null
        : yield* Values.validate("retention-days", Values.retentionDays, wish.retentionDays)
    return yield* change(
      given,
      (prefix) => sql`
        UPDATE api_keys SET prompt_log = ${wish.on}, prompt_log_days = coalesce(${days}::int, prompt_log_days)
        WHERE prefix = ${prefix} RETURNING id`
    )
  }, withRegistryDown)

  const setBudgets = (given: string, wish: Parameters<Registry["Service"]["setBudgets"]>[1]) =>
    withRegistryDown(writeBudgets(sql, given, wish))

  const setTenantBudgets = (tenant: string, wish: Parameters<Registry["Service"]["setTenantBudgets"]>[1]) =>
    withRegistryDown(writeTenantBudgets(sql, tenant, wish))

  const showBudgets = Effect.fnUntraced(function* (given: string) {
    return yield* readBudgets(sql, yield* Values.validate("prefix", Values.prefix, given))
  }, withRegistryDown)

  const atomically = <A, E>(changes: Effect.Effect<A, E>): Effect.Effect<A, E | RegistryDown> =>
    Effect.mapError(sql.withTransaction(changes), (error): E | RegistryDown =>
      isSqlError(error) ? new RegistryDown({ cause: error }) : error
    )

  return {
    createTenant,
    listTenants,
    showTenant: (tenant: string) => withRegistryDown(showTenant(tenant)),
    setTenantLimits,
    setTenantEnabled,
    setModels,
    usage,
    createKey,
    rotateKey,
    listKeys,
    showKey: (prefix: string) => withRegistryDown(readKey(sql, keyColumns, prefix)),
    revokeKey,
    setKeyEnabled,
    setKeyLimits,
    setEndUserHeader,
    setPromptLog,
    setBudgets,
    showBudgets,
    setTenantBudgets,
    showTenantBudgets: (tenant: string) => withRegistryDown(readTenantBudgets(sql, tenant)),
    atomically,
    showPromptLog: Effect.fnUntraced(function* (given, which) {
      const prefix = yield* Values.validate("key", Values.prefix, given)
      yield* showKey(prefix)
      return yield* readPrompts(sql, prefix, which)
    }, withRegistryDown),
    // No deadline for all of it: each statement has one.
    erasePromptLog: Effect.fnUntraced(function* (given) {
      const prefix = yield* withRegistryDown(Values.validate("key", Values.prefix, given))
      yield* withRegistryDown(showKey(prefix))
      return yield* erasePrompts((batch) => withRegistryDown(batch), sql, prefix)
    })
  }
})

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
