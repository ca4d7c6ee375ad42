/**
 * The key store on Postgres.
 *
 * The order matters. The shape is checked before any I/O. The secret of an unusable key is never compared with its hash.
 * After the check of the secret the status is read again, because the check may take long.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Exit, Layer, Result, Schema, Semaphore } from "effect"
import { type Caller, callerSettings, scopes } from "../../domain/Caller.ts"
import { Unauthorized, Unavailable } from "../../domain/Errors.ts"
import { type Evidence, seal } from "../../domain/Evidence.ts"
import { keyShape, prefixOf } from "../../domain/Key.ts"
import { KeyAttributes, TenantAttributes } from "../../domain/attributes.ts"
import type { Metrics } from "../../observability/Metrics.ts"
import { probeWrites } from "../../infra/Postgres.ts"
import { makeRowReader, type Row, selected, type UnreadableRow } from "../../infra/rows.ts"
import { timeoutDetached } from "../../infra/time.ts"
import { listen } from "../../observability/listen.ts"
import { accountOf } from "./accounts.ts"
import { type KeyState, type KeyStateCache, type KnownVersions, makeKeyStateCache } from "./KeyStateCache.ts"
import { KeyStore } from "./KeyStore.ts"
import { makeSecretVerifier, type SecretVerifierOptions } from "./SecretVerifier.ts"

export interface KeyStoreOptions {
  /** `KEY_NAMESPACE` */
  readonly namespace: string
  /** `KEY_FRESHNESS_MS`; default 1000 */
  readonly freshnessMs?: number
  /** `PROMPT_LOG_DEFAULT_RETENTION_DAYS`; default 30 */
  readonly promptLogDefaultDays?: number
  /** how long the database may take to answer; default 900 */
  readonly readTimeoutMs?: number
  readonly secretCheck?: SecretVerifierOptions
  /** called for each notified revocation, with the milliseconds since it was written */
  readonly onRevoked?: (latencyMs: number) => Effect.Effect<void>
}

const channel = "key_revoked"

const keyRows = makeRowReader(
  ({ prefix }) => `key ${String(prefix)}`,
  Schema.Struct({
    prefix: Schema.String,
    version: Schema.String,
    hash: Schema.String,
    keyId: Schema.String,
    accountId: Schema.String,
    tenantId: Schema.String,
    tenantName: Schema.String,
    scopes: Schema.Array(Schema.String),
    usable: Schema.Boolean,
    expiresInMs: Schema.NullOr(Schema.Finite),
    ...KeyAttributes.fields
  })
)

/** In a row, the settings of the tenant stand beside those of the key. */
const ofTenant = "tenant."
const tenantFields = Object.keys(TenantAttributes.fields)
const tenantIn = (row: Row): Row => ({
  name: row["tenantName"],
  ...Object.fromEntries(tenantFields.map((field) => [field, row[`${ofTenant}${field}`]]))
})
const tenantRows = makeRowReader(({ name }) => `tenant ${String(name)}`, TenantAttributes)

const stateOf = (row: Row, promptLogDefaultDays: number): Result.Result<KeyState, UnreadableRow> =>
  Result.map(
    Result.all([keyRows.one(row), tenantRows.one(tenantIn(row))]),
    ([
      {
        accountId,
        expiresInMs,
        hash,
        keyId,
        prefix,
        scopes: stored,
        tenantId,
        tenantName,
        usable,
        version,
        ...key
      },
      tenant
    ]) => {
      const caller: Caller = {
        ...callerSettings(key, tenant, promptLogDefaultDays),
        tenantId,
        tenantName,
        keyId,
        accountId,
        keyPrefix: prefix,
        scopes: new Set(scopes.filter((scope) => stored.includes(scope)))
      }
      return { prefix, version, hash, usable, expiresInMs: expiresInMs ?? undefined, caller }
    }
  )

/**
 * The prefixes are one text, which contains no other commas, so that the statement is the same for any number of them. So are
 * their versions. A version is a hash of all that is stored of the key and of its tenant.
 */
const readKeys = (pg: PgClient.PgClient, promptLogDefaultDays: number) =>
  Effect.fnUntraced(
    function* (known: KnownVersions) {
      const versions = [...known.values()].map((version) => version ?? "")
      const rows = yield* pg`
        SELECT n.prefix AS asked, v.version, k.prefix, k.hash, k.id::text AS "keyId",
          ${accountOf(pg, "k")}::text AS "accountId", t.id::text AS "tenantId", t.name AS "tenantName", k.scopes,
          ${selected(pg, "k", KeyAttributes.fields)}, ${selected(pg, "t", TenantAttributes.fields, ofTenant)}, u.usable,
          CASE WHEN isfinite(k.expires_at)
            THEN (extract(epoch FROM k.expires_at - now()) * 1000)::float8 END AS "expiresInMs"
        FROM unnest(string_to_array(${[...known.keys()].join(",")}, ','), string_to_array(${versions.join(",")}, ','))
            AS n (prefix, version)
          LEFT JOIN api_keys k ON k.prefix = n.prefix
          LEFT JOIN tenants t ON t.id = k.tenant_id
          CROSS JOIN LATERAL (
            SELECT k.status = 'active' AND NOT t.disabled
              AND (k.expires_at IS NULL OR k.expires_at > now())
              AND NOT EXISTS (SELECT FROM revocations r WHERE r.key_prefix = k.prefix) AS usable) u
          CROSS JOIN LATERAL (SELECT hashtextextended(concat(k, t, u.usable), 0)::text AS version) v
        WHERE k.id IS NULL OR v.version IS DISTINCT FROM n.version`
      const changed = new Map<string, KeyState | undefined>()
      for (const row of rows) {
        const state = row["prefix"] === null ? undefined : stateOf(row, promptLogDefaultDays)
        // One unreadable row must not refuse the other keys. Its own key is unknown.
        if (state !== undefined && Result.isFailure(state))
          yield* Effect.logError("key row unreadable", { row: state.failure.row }, state.failure.problem)
        const readable = state !== undefined && Result.isSuccess(state)
        changed.set(String(row["asked"]), readable ? state.success : undefined)
      }
      return changed
    },
    Effect.mapError((cause) => new Unavailable({ gate: "KeyStore", retryAfterS: 1, cause }))
  )

const decodeAge = Schema.decodeUnknownEffect(
  Schema.Tuple([Schema.Struct({ age_ms: Schema.NullOr(Schema.Finite) })])
)

/** Measures by the database's clock how long ago the key was revoked. For the metrics only. */
const reportLatency = (
  pg: PgClient.PgClient,
  prefix: string,
  onRevoked: (latencyMs: number) => Effect.Effect<void>
) =>
  pg`
    SELECT (extract(epoch FROM clock_timestamp() - max(created_at)) * 1000)::float8 AS age_ms
    FROM revocations WHERE key_prefix = ${prefix}`.pipe(
    timeoutDetached("1 second"),
    Effect.flatMap(decodeAge),
    Effect.flatMap(([{ age_ms }]) => (age_ms === null ? Effect.void : onRevoked(age_ms))),
    Effect.catch((cause) => Effect.logDebug("revocation latency not measured", cause))
  )

/** Listens for revocations. Without notifications the poll finds them later. */
const listenForRevocations = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  keys: KeyStateCache,
  onRevoked: (latencyMs: number) => Effect.Effect<void>
) {
  // Many keys may be revoked at once. Their latency is a sample.
  const measured = (yield* Semaphore.make(1)).withPermitsIfAvailable(1)
  yield* listen("revocation_notifications", pg, {
    channel,
    // Changes may have been missed before the connection was there, so all states are read again.
    connected: keys.evictAll,
    heard: (prefix) =>
      Effect.andThen(keys.evict(prefix), Effect.forkScoped(measured(reportLatency(pg, prefix, onRevoked))))
  })
})

export const layerPostgres = (
  options: KeyStoreOptions
): Layer.Layer<KeyStore, never, PgClient.PgClient | Metrics> =>
  Layer.effect(
    KeyStore,
    Effect.gen(function* () {
      const pg = yield* PgClient.PgClient
      const readTimeoutMs = options.readTimeoutMs ?? 900
      const secrets = yield* makeSecretVerifier(options.secretCheck ?? {})
      const keys = yield* makeKeyStateCache({
        read: readKeys(pg, options.promptLogDefaultDays ?? 30),
        freshnessMs: options.freshnessMs ?? 1000,
        readTimeoutMs
      })
      yield* listenForRevocations(pg, keys, options.onRevoked ?? (() => Effect.void))
      const shape = keyShape(options.namespace)

      const verify = (
        secret: string | undefined,
        from?: string
      ): Effect.Effect<Evidence<"KeyStore">, Unauthorized | Unavailable> => {
        if (secret === undefined || !shape.test(secret)) return Exit.fail(new Unauthorized({}))
        const prefix = prefixOf(secret)
        return Effect.flatMapEager(keys.confirmed(prefix), (found) => {
          // An unusable key is checked like an unknown prefix. Its secret is not compared with its hash, so the time of the
          // answer does not show whether the secret was right.
          const before = found?.state.usable === true && !found.expired ? found.state : undefined
          const matched = secrets.matches(secret, prefix, before?.hash, from)
          return Effect.flatMapEager(matched, (matches) => {
            if (!matches || before === undefined)
              return Exit.fail(
                new Unauthorized(found !== undefined && before === undefined ? { ended: prefix } : {})
              )
            return Effect.flatMapEager(
              keys.confirmed(prefix),
              (after): Exit.Exit<Evidence<"KeyStore">, Unauthorized> => {
                if (after === undefined || after.state.hash !== before.hash)
                  return Exit.fail(new Unauthorized({}))
                if (!after.state.usable || after.expired)
                  return Exit.fail(new Unauthorized({ ended: prefix }))
                return Exit.succeed(seal.KeyStore({ caller: after.state.caller }))
              }
            )
          })
        })
      }

      const ping = probeWrites(pg).pipe(
        timeoutDetached("1 second"),
        Effect.mapError((cause) => new Unavailable({ gate: "KeyStore", cause })),
        Effect.asVoid
      )

      return {
        verify,
        forget: (prefix) => (prefix === null ? keys.evictAll : keys.evict(prefix)),
        ping
      }
    })
  )
