/** The audit's contract world: on Postgres past the ports by SQL, in memory by the twin's hand. */
import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { AuditMemory, layerMemory } from "../../src/audit/memory.ts"
import { type AuditOptions, layerLive } from "../../src/audit/live.ts"
import * as Metrics from "../../src/audit/Metrics.ts"
import { auditSumsOf, hasIntent, ledgerOf, type LedgerDay, storedRow } from "../support/auditDatabase.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { Written } from "./Audit.ts"

const layerWrittenLive = Layer.effect(
  Written,
  Effect.map(Effect.context<SqlClient.SqlClient>(), (context) => {
    const provided = <A, E>(effect: Effect.Effect<A, E, SqlClient.SqlClient>) =>
      Effect.provideContext(effect, context)
    return {
      row: (id) => provided(storedRow(id)),
      hasIntent: (id) => provided(hasIntent(id)),
      ledger: (keyId) => provided(ledgerOf(keyId)),
      auditSums: (keyId) => provided(auditSumsOf(keyId))
    }
  })
)

export const layerLiveAudit = (options: Partial<AuditOptions> = {}) =>
  layerLive({ leaseS: 30, ...options }).pipe(Layer.provide(Layer.fresh(Metrics.layer)))

/** Patient: a busy machine is no failure. */
const patient = { openTimeoutMs: 20_000, closeTimeoutMs: 20_000, refuseTimeoutMs: 20_000 }

export const liveWorld = Layer.merge(layerLiveAudit(patient), layerWrittenLive).pipe(
  Layer.provideMerge(TestPostgres)
)

const layerWrittenMemory = Layer.effect(
  Written,
  Effect.map(AuditMemory, (memory) => {
    const sums = (keyId: string): ReadonlyArray<LedgerDay> => {
      const days = new Map<string, LedgerDay>()
      for (const row of memory.rows.values()) {
        if (row.key_id !== keyId || row.admittedAt === undefined) continue
        const day = row.admittedAt.slice(0, 10)
        const entry = days.get(day) ?? { day, requests: 0, tokensIn: 0, tokensOut: 0 }
        days.set(day, {
          day,
          requests: entry.requests + 1,
          tokensIn: entry.tokensIn + row.tokens_in,
          tokensOut: entry.tokensOut + row.tokens_out
        })
      }
      return [...days.values()].sort((a, b) => a.day.localeCompare(b.day))
    }
    return Written.of({
      row: (id) => Effect.sync(() => memory.rows.get(id)),
      hasIntent: (id) => Effect.sync(() => memory.intents.has(id)),
      ledger: (keyId) => Effect.sync(() => sums(keyId)),
      auditSums: (keyId) => Effect.sync(() => sums(keyId))
    })
  })
)

export const memoryWorld = Layer.provideMerge(layerWrittenMemory, layerMemory)
