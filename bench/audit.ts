/**
 * What the always-on audit costs: open + close pairs per second through the live layer, and the two ways to hand a
 * batch to Postgres (one array of rows, or one typed array per column) side by side.
 *
 *     node bench/audit.ts                                  # a throw-away embedded Postgres, synced to disk
 *     DATABASE_URL=postgres://… node bench/audit.ts        # a migrated database; leaves its rows behind
 */
import { mkdtemp, rm } from "node:fs/promises"
import { randomUUID, randomUUIDv7 } from "node:crypto"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as PgTypes from "@effect/sql-pg/PgTypes"
import { Effect, Layer, Redacted, Result } from "effect"
import { Reconciler } from "../src/gates/limits/Reconciler.ts"
import { layerMemory as layerMeter } from "../src/gates/meter/memory/layer.ts"
import { Audit } from "../src/audit/Audit.ts"
import { layerPostgres as layerAudit } from "../src/audit/postgres.ts"
import * as Metrics from "../src/observability/Metrics.ts"
import type { AuditRecord, Intent } from "../src/domain/AuditRecord.ts"
import { completionRow, type AuditRow } from "../src/audit/rows.ts"
import { closeIntents } from "../src/audit/statements.ts"
import type { Caller } from "../src/domain/Caller.ts"
import { embeddedPostgres } from "../src/infra/embedded/EmbeddedPostgres.ts"
import { memoryKey } from "../src/gates/keys/memory.ts"
import { migrate } from "../src/infra/Migrations.ts"
import { type DatabaseAddress, layerPostgres } from "../src/infra/Postgres.ts"
import { queuedFor } from "../test/support/permits.ts"

const pairs = Number(process.env["PAIRS"] ?? 10_000)

const callers = Array.from({ length: 20 }, () => randomUUID()).map(
  (keyId): Caller => memoryKey({ keyId, accountId: keyId, budgets: { total: 1 } }).caller
)

const callerAt = (n: number): Caller => {
  const caller = callers[n % callers.length]
  if (caller === undefined) throw new RangeError(`${n}`)
  return caller
}

const intentAt = (n: number): Intent => {
  const requestId = randomUUIDv7()
  const caller = callerAt(n)
  return {
    arrival: {
      requestId,
      arrivedAt: Date.now(),
      method: "POST",
      endpoint: "/v1/chat/completions",
      clientIp: "192.0.2.1"
    },
    caller,
    model: "llama3.2:latest",
    streamed: true,
    promptEstimate: 12,
    reservation: {
      id: requestId,
      claims: {
        account: { group: caller.tenantId, key: caller.keyId },
        limits: caller.limits,
        budgets: caller.budgets
      },
      held: 268,
      available: 1000,
      admittedAt: Date.now(),
      slot: true
    }
  }
}

const endOf = ({ arrival, caller, model, streamed }: Intent): AuditRecord => ({
  arrival,
  caller,
  model,
  streamed,
  usage: { tokensIn: 12, tokensOut: 40, source: "backend" },
  status: 200,
  latencyMs: 321
})

const quantile = (sorted: ReadonlyArray<number>, q: number): string =>
  (sorted[Math.floor(sorted.length * q)] ?? Number.NaN).toFixed(2)

const through = Effect.fnUntraced(function* (inFlight: number, count: number) {
  const audit = yield* Audit
  const run = Effect.fnUntraced(function* (many: number, times: Array<number>) {
    yield* Effect.forEach(
      Array.from({ length: many }, (_, n) => n),
      (n) =>
        Effect.gen(function* () {
          const intent = intentAt(n)
          const began = performance.now()
          yield* audit.open(queuedFor(intent))
          yield* audit.close(endOf(intent))
          times.push(performance.now() - began)
        }),
      { concurrency: inFlight, discard: true }
    )
  })
  yield* run(Math.min(count, 500), [])
  const times: Array<number> = []
  const [began, cpu] = [performance.now(), process.cpuUsage()]
  yield* run(count, times)
  const seconds = (performance.now() - began) / 1000
  const { user, system } = process.cpuUsage(cpu)
  const sorted = times.sort((a, b) => a - b)
  yield* Effect.logInfo(
    `open + close, ${inFlight} in flight: ${Math.round(count / seconds)} pairs/s, p50 ${quantile(sorted, 0.5)} ms, ` +
      `p99 ${quantile(sorted, 0.99)} ms, ${Math.round((user + system) / count)} us of client CPU a pair`
  )
})

const column = (oid: number, values: ReadonlyArray<unknown>) => Result.getOrThrow(PgTypes.array(values, oid))

/** The same statement as `closeIntents`, with one typed array per column instead of one array of rows. */
const closeUnnested = (pg: PgClient.PgClient) => (rows: ReadonlyArray<AuditRow>) => {
  const text = (of: (row: AuditRow) => string | null) => column(PgTypes.OID.text, rows.map(of))
  const uuid = (of: (row: AuditRow) => string | null) => column(PgTypes.OID.uuid, rows.map(of))
  const int8 = (of: (row: AuditRow) => number) =>
    column(
      PgTypes.OID.int8,
      rows.map((row) => BigInt(of(row)))
    )
  const int4 = (of: (row: AuditRow) => number) => column(PgTypes.OID.int4, rows.map(of))
  return Effect.asVoid(pg`
    WITH r AS (
      SELECT * FROM unnest(${uuid((r) => r.request_id)}, ${column(
        PgTypes.OID.timestamptz,
        rows.map((row) => new Date(row.arrived_at))
      )}, ${uuid((r) => r.tenant_id)}, ${uuid((r) => r.key_id)}, ${text((r) => r.key_prefix)},
        ${text((r) => r.method)}, ${text((r) => r.endpoint)}, ${text((r) => r.model)}, ${column(
          PgTypes.OID.bool,
          rows.map((row) => row.streamed)
        )}, ${int8((r) => r.tokens_in)}, ${int8((r) => r.tokens_out)}, ${text((r) => r.usage_source)},
        ${int4((r) => r.status)}, ${text((r) => r.error_type)}, ${int4((r) => r.latency_ms)},
        ${text((r) => r.client_ip)}, ${text((r) => r.client_request_id)})
        AS r(request_id, arrived_at, tenant_id, key_id, key_prefix, method, endpoint, model, streamed, tokens_in,
          tokens_out, usage_source, status, error_type, latency_ms, client_ip, client_request_id)
    ), ended AS (
      DELETE FROM intents USING r WHERE intents.request_id = r.request_id
      RETURNING intents.request_id, intents.admitted_at
    ), logged AS (
      INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint,
        model, streamed, tokens_in, tokens_out, usage_source, status, error_type, latency_ms, client_ip,
        client_request_id)
      SELECT r.request_id, r.arrived_at, coalesce(ended.admitted_at, r.arrived_at), r.tenant_id, r.key_id,
        r.key_prefix, r.method, r.endpoint, r.model, r.streamed, r.tokens_in, r.tokens_out, r.usage_source,
        r.status, r.error_type, r.latency_ms, r.client_ip, r.client_request_id
      FROM r LEFT JOIN ended ON ended.request_id = r.request_id
      ON CONFLICT (request_id) DO NOTHING
      RETURNING tenant_id, key_id, admitted_at, tokens_in, tokens_out
    )
    INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
    SELECT key_id, tenant_id, (admitted_at AT TIME ZONE 'UTC')::date, count(*), sum(tokens_in), sum(tokens_out)
    FROM logged WHERE key_id IS NOT NULL GROUP BY 1, 2, 3 ORDER BY 1, 3
    ON CONFLICT (key_id, day) DO UPDATE SET
      requests = ledger.requests + excluded.requests,
      tokens_in = ledger.tokens_in + excluded.tokens_in,
      tokens_out = ledger.tokens_out + excluded.tokens_out`)
}

const sideBySide = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const ways = { "array of rows": closeIntents(pg), "typed arrays": closeUnnested(pg) }
  for (const size of [1, 50, 500]) {
    const rounds = Math.max(20, Math.min(1000, Math.round(10_000 / size)))
    for (let again = 0; again < 2; again += 1) {
      for (const [name, write] of Object.entries(ways)) {
        const batches = Array.from({ length: rounds }, () =>
          Array.from({ length: size }, (_, n) => completionRow(endOf(intentAt(n))))
        )
        const [began, cpu] = [performance.now(), process.cpuUsage()]
        for (const batch of batches) yield* write(batch)
        const ms = performance.now() - began
        const { user, system } = process.cpuUsage(cpu)
        yield* Effect.logInfo(
          `close, batches of ${size}, ${name}: ${Math.round((rounds * size) / (ms / 1000))} rows/s, ` +
            `${(ms / rounds).toFixed(2)} ms a batch, ${Math.round((user + system) / (rounds * size))} us of client CPU a row`
        )
      }
    }
  }
})

const measure = (url: DatabaseAddress) =>
  Effect.gen(function* () {
    yield* sideBySide
    for (const [inFlight, count] of [
      [1, pairs / 10],
      [50, pairs],
      [500, pairs * 2]
    ] as const) {
      yield* through(inFlight, count)
    }
  }).pipe(
    Effect.provide(
      layerAudit({ leaseS: 30 }).pipe(
        Layer.provide([Metrics.layer, layerMeter({ leaseS: 30 }), Reconciler.layerNone]),
        Layer.provideMerge(layerPostgres({ url }))
      )
    )
  )

const throwAway = Effect.gen(function* () {
  const dataDir = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "tollgate-bench-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
  )
  const postgres = yield* embeddedPostgres({ dataDir })
  yield* migrate.pipe(Effect.provide(layerPostgres({ url: postgres, maxConnections: 1 })))
  yield* measure(postgres)
}).pipe(Effect.scoped)

const url = process.env["DATABASE_URL"]
await Effect.runPromise(url === undefined ? throwAway : measure(Redacted.make(url)))
