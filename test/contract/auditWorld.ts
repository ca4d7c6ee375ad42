/** The audit's contract world: on Postgres past the ports by SQL, in memory by the twin's hand. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import { AuditMemory, layerMemory } from "../support/twins/Audit.ts"
import { type AuditOptions, layerPostgres } from "../../src/audit/postgres.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { progressRow } from "../../src/audit/rows.ts"
import { renewIntents } from "../../src/audit/statements.ts"
import { layerPostgres as layerLedger } from "../../src/ledger/postgres.ts"
import { endExpired } from "../../src/audit/statements.ts"
import { noReconciler } from "../support/noReconciler.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import {
  auditSumsOf,
  correctionOf,
  hasIntent,
  insertKey,
  ledgerOf,
  type LedgerDay,
  storedRow
} from "../support/auditDatabase.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { Written } from "./Audit.ts"

type Stores = SqlClient.SqlClient | PgClient.PgClient

const layerWrittenLive = Layer.effect(
  Written,
  Effect.map(Effect.context<Stores>(), (context) => {
    const provided = <A, E>(effect: Effect.Effect<A, E, Stores>) => Effect.provideContext(effect, context)
    return {
      addKey: (caller) => provided(insertKey(caller)),
      row: (id) => provided(storedRow(id)),
      hasIntent: (id) => provided(hasIntent(id)),
      ledger: (keyId) => provided(ledgerOf(keyId)),
      auditSums: (keyId) => provided(auditSumsOf(keyId)),
      correction: (id) => provided(correctionOf(id)),
      beat: (id, usage) =>
        provided(
          Effect.flatMap(PgClient.PgClient, (pg) =>
            renewIntents(pg, 30)([progressRow(id, { ...usage, held: 0 })])
          )
        ),
      abort: (id) =>
        provided(
          Effect.gen(function* () {
            const pg = yield* PgClient.PgClient
            yield* pg`UPDATE intents SET lease_until = now() - interval '1 second' WHERE request_id = ${id}::text::uuid`
            yield* endExpired(pg, id)
          })
        )
    }
  })
)

/** Counters that corrections are charged to, and a comparison that nobody makes. */
const layerCounters = Layer.merge(layerMeter({ leaseS: 30 }), noReconciler)

export const layerLiveAudit = (options: Partial<AuditOptions> = {}) =>
  Layer.merge(layerPostgres({ leaseS: 30, ...options }), layerLedger).pipe(
    Layer.provide(layerCounters),
    Layer.provide(Layer.fresh(Metrics.layer))
  )

/** Patient: a busy machine is no failure. */
const patient = { openTimeoutMs: 20_000, closeTimeoutMs: 20_000, refuseTimeoutMs: 20_000 }

export const liveWorld = Layer.merge(layerLiveAudit(patient), layerWrittenLive).pipe(
  Layer.provideMerge(TestPostgres)
)

const layerWrittenMemory = Layer.effect(
  Written,
  Effect.map(AuditMemory, ({ abort, tables }) => {
    const sums = (keyId: string): ReadonlyArray<LedgerDay> => {
      const days = new Map<string, LedgerDay>()
      for (const row of tables.audit.values()) {
        if (row.key_id !== keyId || row.admitted_at === null) continue
        const day = row.admitted_at.slice(0, 10)
        const entry = days.get(day) ?? { day, requests: 0, tokensIn: 0, tokensOut: 0 }
        const more = tables.corrections.get(row.request_id)
        days.set(day, {
          day,
          requests: entry.requests + 1,
          tokensIn: entry.tokensIn + row.tokens_in + (more?.tokens_in ?? 0),
          tokensOut: entry.tokensOut + row.tokens_out + (more?.tokens_out ?? 0)
        })
      }
      return [...days.values()].sort((a, b) => a.day.localeCompare(b.day))
    }
    return Written.of({
      // The twin takes the account from the caller of each intent.
      addKey: () => Effect.void,
      row: (id) => Effect.sync(() => tables.audit.get(id)),
      hasIntent: (id) => Effect.sync(() => tables.intents.has(id)),
      ledger: (keyId) => Effect.sync(() => sums(keyId)),
      auditSums: (keyId) => Effect.sync(() => sums(keyId)),
      correction: (id) =>
        Effect.sync(() => {
          const found = tables.corrections.get(id)
          return found && Struct.pick(found, ["tokens_in", "tokens_out", "status"])
        }),
      // Nothing is between the twin and its store.
      beat: () => Effect.void,
      abort
    })
  })
)

export const memoryWorld = Layer.provideMerge(layerWrittenMemory, layerMemory)
