/**
 * Audit and ledger without a database, for tests: one store behind both ports, with a hand to look into it and to take
 * it away. It means what the live layer means: written once per request id, kept while it is down, no admission
 * while a completion is kept.
 */
import { Context, Effect, Layer } from "effect"
import { dayOf, monthOf } from "../domain/Calendar.ts"
import { Unavailable } from "../domain/Errors.ts"
import { evidence } from "../domain/Evidence.ts"
import { Audit } from "./Audit.ts"
import { Ledger, LedgerDown } from "./Ledger.ts"
import type { AuditRecord, Intent } from "./Record.ts"
import { type AuditRow, auditRow, holdBack, intentRow } from "./rows.ts"

/** A row of the log; `admittedAt` (ISO) is there when it counts in the ledger. */
export type StoredRow = AuditRow & { readonly admittedAt?: string }

export interface StoredIntent {
  readonly intent: Intent
  /** tokens so far, as the heartbeat would have written them */
  readonly used: number
}

/** The hand of a test on the memory twin. */
export class AuditMemory extends Context.Service<
  AuditMemory,
  {
    /** the log, by request id, in the order of writing */
    readonly rows: ReadonlyMap<string, StoredRow>
    readonly intents: ReadonlyMap<string, StoredIntent>
    /** While down nothing is written or read; what is kept is written when it is up again. */
    setDown(down: boolean): Effect.Effect<void>
    /** Takes away the ledger alone. */
    setLedgerDown(down: boolean): Effect.Effect<void>
  }
>()("tollgate/audit/AuditMemory") {}

interface Kept {
  readonly row: AuditRow
  readonly opened: boolean
}

const unavailable = (cause: string) =>
  new Unavailable({ gate: "Audit", retryAfterS: 1, cause: new Error(cause) })

const make = (most: number) =>
  Effect.sync(() => {
    const rows = new Map<string, StoredRow>()
    const intents = new Map<string, StoredIntent>()
    let kept: ReadonlyArray<Kept> = []
    let down = false
    let ledgerDown = false

    const write = ({ row, opened }: Kept): void => {
      const stored = intents.get(row.request_id)
      intents.delete(row.request_id)
      if (rows.has(row.request_id)) return
      const admittedAt = stored === undefined ? row.arrived_at : intentRow(stored.intent).admitted_at
      rows.set(row.request_id, opened ? { ...row, admittedAt } : row)
      if (rows.size > most) {
        const { value: oldest } = rows.keys().next()
        if (oldest !== undefined) rows.delete(oldest)
      }
    }

    /** Answers whether it is written; if not, it is kept, and nobody has waited for it. */
    const put = (record: AuditRecord, opened: boolean): boolean => {
      const entry = { row: auditRow(record), opened }
      if (down) {
        holdBack(entry.row)
        kept = [...kept, entry]
      } else write(entry)
      return !down
    }

    const audit = Audit.of({
      open: (intent) =>
        Effect.suspend(() => {
          const { requestId } = intent.arrival
          if (down) return unavailable("down")
          if (!rows.has(requestId) && !intents.has(requestId)) {
            intents.set(requestId, { intent, used: intentRow(intent).tokens_in })
          }
          return Effect.succeed(evidence("Audit", { requestId }))
        }),
      progress: (requestId, usage) =>
        Effect.sync(() => {
          const stored = intents.get(requestId)
          if (stored === undefined) return
          intents.set(requestId, { ...stored, used: Math.max(stored.used, usage.tokensIn + usage.tokensOut) })
        }),
      close: (record) => Effect.sync(() => (put(record, true) ? Effect.void : unavailable("down"))),
      refuse: (record) =>
        Effect.suspend(() => (put(record, false) || record.status >= 400 ? Effect.void : unavailable("down")))
    })

    const spentBy = function* (keyId: string) {
      for (const row of rows.values()) {
        if (row.key_id === keyId && row.admittedAt !== undefined) {
          yield { at: Date.parse(row.admittedAt), tokens: row.tokens_in + row.tokens_out }
        }
      }
      for (const { intent, used } of intents.values()) {
        if (intent.caller.keyId === keyId) {
          yield { at: intent.reservation.admittedAt, tokens: Math.max(intentRow(intent).held, used) }
        }
      }
    }

    const ledger = Ledger.of({
      spent: (keyId, at) =>
        Effect.suspend(() => {
          if (down || ledgerDown) return new LedgerDown({ cause: new Error("down") })
          const spent = { day: 0, month: 0, total: 0 }
          for (const entry of spentBy(keyId)) {
            spent.total += entry.tokens
            if (monthOf(entry.at) === monthOf(at)) spent.month += entry.tokens
            if (dayOf(entry.at) === dayOf(at)) spent.day += entry.tokens
          }
          return Effect.succeed(spent)
        })
    })

    const hand = AuditMemory.of({
      rows,
      intents,
      setDown: (value) =>
        Effect.sync(() => {
          down = value
          if (down) return
          for (const entry of kept) write(entry)
          kept = []
        }),
      setLedgerDown: (value) => Effect.sync(() => void (ledgerDown = value))
    })

    return Context.make(Audit, audit).pipe(Context.add(Ledger, ledger), Context.add(AuditMemory, hand))
  })

export const layerMemory: Layer.Layer<Audit | Ledger | AuditMemory> = Layer.effectContext(
  make(Number.POSITIVE_INFINITY)
)

/** Keeps the latest `most` rows: for what runs longer than a test, and asks nobody's ledger. */
export const layerMemoryOf = (most: number): Layer.Layer<Audit | Ledger | AuditMemory> =>
  Layer.effectContext(make(most))
