/**
 * What the always-on audit costs: open + close pairs per second through the live layer.
 *
 *     node bench/audit.ts                                  # a throw-away embedded Postgres, synced to disk
 *     DATABASE_URL=postgres://… node bench/audit.ts        # a migrated database on this machine; leaves its rows behind
 */
import { mkdtemp, rm } from "node:fs/promises"
import { randomUUID, randomUUIDv7 } from "node:crypto"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Effect, Layer, Redacted } from "effect"
import { noReconciler } from "../test/support/noReconciler.ts"
import { layerMemory as layerMeter } from "../src/gates/meter/memory/layer.ts"
import { Audit } from "../src/audit/Audit.ts"
import { layerPostgres as layerAudit } from "../src/audit/postgres.ts"
import * as Metrics from "../src/observability/Metrics.ts"
import type { AuditRecord } from "../src/domain/AuditRecord.ts"
import type { Caller } from "../src/domain/Caller.ts"
import { embeddedPostgres } from "../src/infra/embedded/EmbeddedPostgres.ts"
import { memoryKey } from "../test/support/twins/KeyStore.ts"
import { migrate } from "../src/infra/Migrations.ts"
import { type DatabaseAddress, layerPostgres } from "../src/infra/Postgres.ts"
import { serverCpu } from "./serverCpu.ts"
import { queuedFor } from "../test/support/permits.ts"
import type { Intent } from "../test/support/records.ts"

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
  const [began, cpu, server] = [performance.now(), process.cpuUsage(), yield* serverCpu]
  yield* run(count, times)
  const seconds = (performance.now() - began) / 1000
  const { user, system } = process.cpuUsage(cpu)
  const sorted = times.sort((a, b) => a - b)
  yield* Effect.logInfo(
    `open + close, ${inFlight} in flight: ${Math.round(count / seconds)} pairs/s, p50 ${quantile(sorted, 0.5)} ms, ` +
      `p99 ${quantile(sorted, 0.99)} ms, ${Math.round((user + system) / count)} us of client CPU a pair, ` +
      `${Math.round((((yield* serverCpu) - server) * 1e6) / count)} us of Postgres`
  )
})

const measure = (url: DatabaseAddress) =>
  Effect.gen(function* () {
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
        Layer.provide([Metrics.layer, layerMeter({ leaseS: 30 }), noReconciler]),
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
