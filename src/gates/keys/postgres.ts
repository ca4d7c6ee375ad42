/**
 * The key store on Postgres.
 *
 * The order matters. The shape is checked before any I/O. The secret of an unusable key is never compared with its hash.
 * After the check of the secret the status is read again, because the check may take long.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Cause, Data, Effect, Layer, Result, Schema, type Scope, Stream } from "effect"
import { type Caller, priorities, scopes } from "../../domain/Caller.ts"
import { Unauthorized, Unavailable } from "../../domain/Errors.ts"
import type { Budgets } from "../../domain/Limits.ts"
import { type Evidence, seal } from "../../domain/Evidence.ts"
import { keyShape, prefixOf } from "../../domain/Key.ts"
import type { Metrics } from "../../observability/Metrics.ts"
import { timeoutDetached } from "../../infra/time.ts"
import { background, jittered, makeOutage } from "../../observability/background.ts"
import { accountOf } from "./accounts.ts"
import { type KeyStateCache, type KeyState, makeKeyStateCache } from "./KeyStateCache.ts"
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

const Amount = Schema.NullOr(Schema.Finite)

const KeyRow = Schema.Struct({
  prefix: Schema.String,
  hash: Schema.String,
  key_id: Schema.String,
  account_id: Schema.String,
  tenant_id: Schema.String,
  tenant_name: Schema.String,
  scopes: Schema.Array(Schema.String),
  rpm: Schema.Int,
  tpm: Schema.Int,
  concurrent: Schema.Int,
  budget_daily: Amount,
  budget_monthly: Amount,
  budget_total: Amount,
  tenant_budget_daily: Amount,
  tenant_budget_monthly: Amount,
  tenant_budget_total: Amount,
  weight: Schema.Int,
  priority: Schema.Literals(priorities),
  allow_all_models: Schema.Boolean,
  allowed_models: Schema.Array(Schema.String),
  model_aliases: Schema.Record(Schema.String, Schema.String),
  end_user_header: Schema.NullOr(Schema.String),
  prompt_log: Schema.Boolean,
  prompt_log_days: Schema.NullOr(Schema.Int),
  usable: Schema.Boolean,
  expires_in_ms: Schema.NullOr(Schema.Finite)
})

const decodeRow = Schema.decodeUnknownResult(KeyRow)

const aliasesOf = (aliases: typeof KeyRow.Type.model_aliases): Pick<Caller, "aliases"> => {
  const entries = Object.entries(aliases)
  return entries.length === 0 ? {} : { aliases: new Map(entries) }
}

const budgetsOf = (day: number | null, month: number | null, total: number | null): Budgets => ({
  ...(day === null ? {} : { day }),
  ...(month === null ? {} : { month }),
  ...(total === null ? {} : { total })
})

const stateOf = (row: typeof KeyRow.Type, promptLogDefaultDays: number): KeyState => {
  const caller: Caller = {
    tenantId: row.tenant_id,
    tenantName: row.tenant_name,
    keyId: row.key_id,
    accountId: row.account_id,
    keyPrefix: row.prefix,
    scopes: new Set(scopes.filter((scope) => row.scopes.includes(scope))),
    limits: { rpm: row.rpm, tpm: row.tpm, concurrent: row.concurrent },
    budgets: budgetsOf(row.budget_daily, row.budget_monthly, row.budget_total),
    tenantBudgets: budgetsOf(row.tenant_budget_daily, row.tenant_budget_monthly, row.tenant_budget_total),
    weight: row.weight,
    priority: row.priority,
    models: row.allow_all_models ? "all" : new Set(row.allowed_models),
    ...aliasesOf(row.model_aliases),
    ...(row.end_user_header === null ? {} : { endUserHeader: row.end_user_header.toLowerCase() }),
    ...(row.prompt_log ? { promptLogDays: row.prompt_log_days ?? promptLogDefaultDays } : {})
  }
  return {
    prefix: row.prefix,
    hash: row.hash,
    usable: row.usable,
    expiresInMs: row.expires_in_ms ?? undefined,
    caller
  }
}

/**
 * The prefixes are one text, which contains no other commas, so that the statement is the same for any number of them.
 * Numbers are read as float8, exact up to 2^53, because int8 would become bigint.
 */
const readKeys = (pg: PgClient.PgClient, promptLogDefaultDays: number) =>
  Effect.fnUntraced(
    function* (prefixes: ReadonlyArray<string>) {
      const rows = yield* pg<object>`
      SELECT k.prefix, k.hash, k.id::text AS key_id, ${accountOf(pg, "k")}::text AS account_id, t.id::text AS tenant_id, t.name AS tenant_name, k.scopes,
        coalesce(k.rpm, t.rpm) AS rpm, coalesce(k.tpm, t.tpm) AS tpm,
        coalesce(k.concurrent, t.concurrent) AS concurrent,
        k.budget_daily::float8 AS budget_daily, k.budget_monthly::float8 AS budget_monthly,
        k.budget_total::float8 AS budget_total,
        t.budget_daily::float8 AS tenant_budget_daily, t.budget_monthly::float8 AS tenant_budget_monthly,
        t.budget_total::float8 AS tenant_budget_total,
        t.weight, k.priority, k.end_user_header, t.allow_all_models, t.allowed_models, t.model_aliases, k.prompt_log, k.prompt_log_days,
        k.status = 'active' AND NOT t.disabled
          AND (k.expires_at IS NULL OR k.expires_at > now())
          AND NOT EXISTS (SELECT FROM revocations r WHERE r.key_prefix = k.prefix) AS usable,
        CASE WHEN isfinite(k.expires_at)
          THEN (extract(epoch FROM k.expires_at - now()) * 1000)::float8 END AS expires_in_ms
      FROM api_keys k JOIN tenants t ON t.id = k.tenant_id
      WHERE k.prefix = ANY (string_to_array(${prefixes.join(",")}, ','))`
      const states: Array<KeyState> = []
      for (const row of rows) {
        const decoded = decodeRow(row)
        if (Result.isSuccess(decoded)) states.push(stateOf(decoded.success, promptLogDefaultDays))
        // One unreadable row must not refuse the other keys. Its own key is unknown.
        else yield* Effect.logError("key row unreadable", decoded.failure.message)
      }
      return states
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

/** The connection for notifications has ended without an error. */
class ListeningEnded extends Data.TaggedError("ListeningEnded")<{}> {}

/** Logs the message only: the error itself may quote the address of the database. */
const logListenFailure = (cause: Cause.Cause<unknown>): Effect.Effect<void> => {
  const error = Cause.squash(cause)
  return Effect.logWarning(
    "revocation notifications lost, polling instead",
    error instanceof Error ? error.message : "broken"
  )
}

/** Listens for revocations. Without notifications the poll finds them later. */
const listen = Effect.fnUntraced(function* (
  pg: PgClient.PgClient,
  keys: KeyStateCache,
  onRevoked: (latencyMs: number) => Effect.Effect<void>
): Effect.fn.Return<void, never, Metrics | Scope.Scope> {
  const outage = yield* makeOutage("revocation_notifications", logListenFailure)
  const listening = Effect.gen(function* () {
    const notifications = yield* pg.listen(channel)
    yield* outage.over
    // Changes may have been missed before the connection was there, so all states are read again.
    yield* keys.evictAll
    yield* Stream.fromQueue(notifications).pipe(
      Stream.runForEach(({ payload }) =>
        Effect.andThen(keys.evict(payload), Effect.forkScoped(reportLatency(pg, payload, onRevoked)))
      )
    )
    return yield* new ListeningEnded()
  })
  yield* background("revocation_notifications", Effect.scoped(listening), jittered(500), outage)
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
      yield* listen(pg, keys, options.onRevoked ?? (() => Effect.void))
      const shape = keyShape(options.namespace)
      const refused = Effect.suspend(() => Effect.fail(new Unauthorized()))

      // Eager operators: for a key in use nothing is waited for, and no step is taken between its three questions.
      const check = (secret: string, from: string | undefined) => {
        const prefix = prefixOf(secret)
        return Effect.flatMapEager(keys.confirmed(prefix), (found) => {
          // An unusable key is checked like an unknown prefix. Its secret is not compared with its hash, so the time of the
          // answer does not show whether the secret was right.
          const before = found?.state.usable === true && !found.expired ? found : undefined
          return Effect.flatMapEager(
            secrets.matches(secret, prefix, before?.state.hash, from),
            (matches): Effect.Effect<Evidence<"KeyStore">, Unauthorized | Unavailable> =>
              !matches || before === undefined
                ? refused
                : Effect.flatMapEager(keys.confirmed(prefix), (now) => {
                    if (now === undefined || now.state.hash !== before.state.hash) return refused
                    if (!now.state.usable || now.expired) return refused
                    return Effect.succeed(seal.KeyStore({ caller: now.state.caller }))
                  })
          )
        })
      }

      const ping = Effect.suspend(() => pg`SELECT 1`).pipe(
        timeoutDetached(readTimeoutMs),
        Effect.mapError((cause) => new Unavailable({ gate: "KeyStore", cause })),
        Effect.asVoid
      )

      return {
        verify: (secret, from) =>
          secret === undefined || !shape.test(secret) ? refused : Effect.suspend(() => check(secret, from)),
        ping
      }
    })
  )
