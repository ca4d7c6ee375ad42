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
import { Ledger, LedgerDown } from "../gates/limits/Ledger.ts"
import type { Intent } from "../domain/AuditRecord.ts"
import { type AuditRow, auditRow, recordAs503, intentRow } from "./rows.ts"
import { makeTally } from "./Tally.ts"

/** A row of the log; `admittedAt` (ISO) is there when it counts in the ledger. */
export type StoredRow = AuditRow & { readonly admittedAt?: string }

export interface StoredIntent {
  readonly intent: Intent
  /** tokens so far, as the heartbeat would have written them */
  readonly tokensIn: number
  readonly tokensOut: number
}

/** What the request's own process said later of a row that another had written for it. */
export interface StoredCorrection {
  readonly tokens_in: number
  readonly tokens_out: number
  readonly status: number
}

/** The hand of a test on the memory twin. */
export class AuditMemory extends Context.Service<
  AuditMemory,
  {
    /** the log, by request id, in the order of writing */
    readonly rows: ReadonlyMap<string, StoredRow>
    readonly intents: ReadonlyMap<string, StoredIntent>
    /** by request id */
    readonly corrections: ReadonlyMap<string, StoredCorrection>
    /** Closes an intent as another replica does that takes its process for dead. */
    abort(requestId: string): Effect.Effect<void>
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
  Effect.gen(function* () {
    const rows = new Map<string, StoredRow>()
    const intents = new Map<string, StoredIntent>()
    const corrections = new Map<string, StoredCorrection>()
    let kept: ReadonlyArray<Kept> = []
    let down = false
    let ledgerDown = false

    const write = ({ row, opened }: Kept): void => {
      const stored = intents.get(row.request_id)
      intents.delete(row.request_id)
      const written = rows.get(row.request_id)
      if (written !== undefined) {
        if (opened && written.error_type === "aborted" && !corrections.has(row.request_id)) {
          corrections.set(row.request_id, {
            tokens_in: row.tokens_in - written.tokens_in,
            tokens_out: row.tokens_out - written.tokens_out,
            status: row.status
          })
        }
        return
      }
      const admittedAt = stored === undefined ? row.arrived_at : intentRow(stored.intent).admitted_at
      rows.set(row.request_id, opened ? { ...row, admittedAt } : row)
      if (rows.size > most) {
        const { value: oldest } = rows.keys().next()
        if (oldest !== undefined) {
          rows.delete(oldest)
          corrections.delete(oldest)
        }
      }
    }

    /** Answers whether it is written; if not, it is kept, and nobody has waited for it. */
    const put = (row: AuditRow, opened: boolean): boolean => {
      const entry = { row, opened }
      if (down) {
        recordAs503(entry.row)
        kept = [...kept, entry]
      } else write(entry)
      return !down
    }

    const tally = yield* makeTally((row) => Effect.sync(() => (put(row, false), true)))

    const audit = Audit.of({
      open: (intent) =>
        Effect.suspend(() => {
          const { requestId } = intent.arrival
          if (down) return unavailable("down")
          if (!rows.has(requestId) && !intents.has(requestId)) {
            intents.set(requestId, { intent, tokensIn: intentRow(intent).tokens_in, tokensOut: 0 })
          }
          return Effect.succeed(evidence("Audit", { requestId }))
        }),
      progress: (requestId, usage) =>
        Effect.sync(() => {
          const stored = intents.get(requestId)
          if (stored === undefined) return
          intents.set(requestId, {
            ...stored,
            tokensIn: Math.max(stored.tokensIn, usage.tokensIn),
            tokensOut: Math.max(stored.tokensOut, usage.tokensOut)
          })
        }),
      close: (record) => Effect.sync(() => (put(auditRow(record), true) ? Effect.void : unavailable("down"))),
      refuse: (record) =>
        Effect.suspend(() =>
          put(auditRow(record), false) || record.status >= 400 ? Effect.void : unavailable("down")
        ),
      tally: tally.add
    })

    const spentBy = function* (keyId: string) {
      for (const row of rows.values()) {
        if (row.key_id === keyId && row.admittedAt !== undefined) {
          const more = corrections.get(row.request_id)
          yield {
            at: Date.parse(row.admittedAt),
            tokens:
              row.tokens_in + row.tokens_out + (more === undefined ? 0 : more.tokens_in + more.tokens_out)
          }
        }
      }
      for (const { intent, tokensIn, tokensOut } of intents.values()) {
        if (intent.caller.keyId === keyId) {
          yield {
            at: intent.reservation.admittedAt,
            tokens: Math.max(intentRow(intent).held, tokensIn + tokensOut)
          }
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
      corrections,
      abort: (requestId) =>
        Effect.sync(() => {
          const stored = intents.get(requestId)
          if (stored === undefined) return
          const { intent, tokensIn, tokensOut } = stored
          const row = auditRow({
            arrival: intent.arrival,
            caller: intent.caller,
            model: intent.model,
            streamed: intent.streamed,
            usage: { tokensIn, tokensOut, source: "counted" },
            status: 500,
            errorType: "aborted",
            latencyMs: 0
          })
          write({ row, opened: true })
        }),
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
