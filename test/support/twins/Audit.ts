/**
 * Audit and ledger in memory, for tests: one store behind both ports. `AuditMemory` lets a test read the store and take it
 * down. It behaves as the Postgres layer does: one row per request id, rows wait while it is down, and no admission while a
 * completion waits.
 */
import { Context, Effect, Layer } from "effect"
import { dayOf, monthOf } from "../../../src/domain/Calendar.ts"
import { Unavailable } from "../../../src/domain/Errors.ts"
import type { CounterOwner } from "../../../src/domain/Reservation.ts"
import { type Facts, seal } from "../../../src/domain/Evidence.ts"
import { outcomes } from "../../../src/domain/Outcome.ts"
import { Audit } from "../../../src/audit/Audit.ts"
import { Ledger, LedgerDown } from "../../../src/gates/limits/Ledger.ts"
import type { AuditRecord } from "../../../src/domain/AuditRecord.ts"
import { type AuditRow, auditRow, completionRow, intentRow, recordAs503 } from "../../../src/audit/rows.ts"
import { makeTally } from "../../../src/audit/Tally.ts"

export interface StoredIntent {
  readonly facts: Facts<"Queue">
  /** tokens so far, as the heartbeat would write them */
  readonly tokensIn: number
  readonly tokensOut: number
}

/** The difference that a request's own process reports later, after another replica has closed the request. */
export interface StoredCorrection {
  readonly tokens_in: number
  readonly tokens_out: number
  readonly status: number
}

/** What a test can read and change in the memory twin. */
export class AuditMemory extends Context.Service<
  AuditMemory,
  {
    /** the log, by request id, in the order of writing */
    readonly rows: ReadonlyMap<string, AuditRow>
    readonly intents: ReadonlyMap<string, StoredIntent>
    /** by request id */
    readonly corrections: ReadonlyMap<string, StoredCorrection>
    /** Closes an intent, as another replica does when it takes the process for dead. */
    abort(requestId: string): Effect.Effect<void>
    /** While down, nothing is read or written. Waiting rows are written when it is up again. */
    setDown(down: boolean): Effect.Effect<void>
    /** Takes down the ledger only. */
    setLedgerDown(down: boolean): Effect.Effect<void>
  }
>()("tollgate/audit/AuditMemory") {}

const admittedAt = (stored: StoredIntent | undefined): string | undefined =>
  stored && intentRow(stored.facts).admitted_at

const unavailable = (cause: string) =>
  new Unavailable({ gate: "Audit", retryAfterS: 1, cause: new Error(cause) })

const make = (maxRows: number) =>
  Effect.gen(function* () {
    const rows = new Map<string, AuditRow>()
    const intents = new Map<string, StoredIntent>()
    const corrections = new Map<string, StoredCorrection>()
    /** accounts of the keys that had an intent */
    const accounts = new Map<string, string>()
    let waiting: ReadonlyArray<AuditRow> = []
    let down = false
    let ledgerDown = false

    const write = (row: AuditRow): void => {
      intents.delete(row.request_id)
      const written = rows.get(row.request_id)
      if (written !== undefined) {
        if (written.error_type === outcomes.aborted.type && !corrections.has(row.request_id)) {
          corrections.set(row.request_id, {
            tokens_in: row.tokens_in - written.tokens_in,
            tokens_out: row.tokens_out - written.tokens_out,
            status: row.status
          })
        }
        return
      }
      rows.set(row.request_id, row)
      if (rows.size > maxRows) {
        const { value: oldest } = rows.keys().next()
        if (oldest !== undefined) {
          rows.delete(oldest)
          corrections.delete(oldest)
        }
      }
    }

    /** Returns whether the row is written. If not, it waits, and its request does not. */
    const put = (row: AuditRow): boolean => {
      if (down) {
        recordAs503(row)
        waiting = [...waiting, row]
      } else write(row)
      return !down
    }

    const tally = yield* makeTally((row) => Effect.sync(() => (put(row), true)))

    const completionOf = (record: AuditRecord): AuditRow =>
      completionRow(record, admittedAt(intents.get(record.arrival.requestId)))

    const audit = Audit.of({
      open: (queued) =>
        Effect.suspend(() => {
          if (down) return unavailable("down")
          const { facts } = queued
          const { requestId } = facts.arrival
          accounts.set(facts.caller.keyId, facts.caller.accountId)
          if (!rows.has(requestId) && !intents.has(requestId)) {
            intents.set(requestId, { facts, tokensIn: intentRow(facts).tokens_in, tokensOut: 0 })
          }
          return Effect.succeed(seal.Audit(queued, {}))
        }),
      progress: (requestId, usage) => {
        const stored = intents.get(requestId)
        if (stored === undefined) return
        intents.set(requestId, {
          ...stored,
          tokensIn: Math.max(stored.tokensIn, usage.tokensIn),
          tokensOut: Math.max(stored.tokensOut, usage.tokensOut)
        })
      },
      close: (record) => (put(completionOf(record)) ? Effect.void : unavailable("down")),
      refuse: (record) => (put(auditRow(record)) || record.status >= 400 ? Effect.void : unavailable("down")),
      tally: tally.add
    })

    const requestsOf = function* ({ group, key, user }: CounterOwner) {
      const isOwn = (caller: { readonly tenantId: string | null; readonly keyId: string | null }) =>
        key === undefined
          ? caller.tenantId === group
          : (accounts.get(caller.keyId ?? "") ?? caller.keyId) === key
      for (const row of rows.values()) {
        if (user !== undefined && row.user_account !== user) continue
        if (isOwn({ tenantId: row.tenant_id, keyId: row.key_id }) && row.admitted_at !== null) {
          const more = corrections.get(row.request_id)
          yield {
            at: Date.parse(row.admitted_at),
            tokens:
              row.tokens_in + row.tokens_out + (more === undefined ? 0 : more.tokens_in + more.tokens_out)
          }
        }
      }
      for (const { facts, tokensIn, tokensOut } of intents.values()) {
        if (user !== undefined && facts.reservation.claims.user?.id !== user) continue
        if (isOwn(facts.caller)) {
          yield {
            at: facts.reservation.admittedAt,
            tokens: Math.max(intentRow(facts).held, tokensIn + tokensOut)
          }
        }
      }
    }

    const ledger = Ledger.of({
      spent: (owner, at) =>
        Effect.suspend(() => {
          if (down || ledgerDown) return new LedgerDown({ cause: new Error("down") })
          const spent = { day: 0, month: 0, total: 0 }
          for (const entry of requestsOf(owner)) {
            spent.total += entry.tokens
            if (monthOf(entry.at) === monthOf(at)) spent.month += entry.tokens
            if (dayOf(entry.at) === dayOf(at)) spent.day += entry.tokens
          }
          return Effect.succeed(spent)
        })
    })

    const memory = AuditMemory.of({
      rows,
      intents,
      corrections,
      abort: (requestId) =>
        Effect.sync(() => {
          const stored = intents.get(requestId)
          if (stored === undefined) return
          const { facts, tokensIn, tokensOut } = stored
          const { user } = facts.reservation.claims
          const row = completionOf({
            arrival: facts.arrival,
            caller: facts.caller,
            model: facts.model.name,
            ...(facts.alias === undefined ? {} : { alias: facts.alias }),
            ...(facts.endUser === undefined ? {} : { endUser: facts.endUser }),
            ...(user === undefined ? {} : { userAccount: user.id }),
            streamed: facts.request.stream,
            usage: { tokensIn, tokensOut, source: "counted" },
            status: outcomes.aborted.status,
            errorType: outcomes.aborted.type,
            latencyMs: 0
          })
          write(row)
        }),
      setDown: (value) =>
        Effect.sync(() => {
          down = value
          if (down) return
          for (const row of waiting) write(row)
          waiting = []
        }),
      setLedgerDown: (value) => Effect.sync(() => void (ledgerDown = value))
    })

    return Context.make(Audit, audit).pipe(Context.add(Ledger, ledger), Context.add(AuditMemory, memory))
  })

export const layerMemory: Layer.Layer<Audit | Ledger | AuditMemory> = Layer.effectContext(
  make(Number.POSITIVE_INFINITY)
)

/** Keeps the latest `maxRows` rows, for programs that run long and do not read the ledger. */
export const layerMemoryOf = (maxRows: number): Layer.Layer<Audit | Ledger | AuditMemory> =>
  Layer.effectContext(make(maxRows))
