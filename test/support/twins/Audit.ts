/**
 * Audit and ledger in memory, for tests: `Tables` behind both ports. `AuditMemory` lets a test read the tables and take them
 * down. It behaves as the Postgres layer does: one row per request id, rows wait while it is down, and no admission while a
 * completion waits.
 */
import { Context, Effect, Layer } from "effect"
import { Unavailable } from "../../../src/domain/Errors.ts"
import { seal } from "../../../src/domain/Evidence.ts"
import { Audit } from "../../../src/audit/Audit.ts"
import { Ledger, LedgerDown } from "../../../src/gates/limits/Ledger.ts"
import {
  type AuditRow,
  auditRow,
  completionRow,
  intentRow,
  progressRow,
  recordAs503
} from "../../../src/audit/rows.ts"
import { makeTally } from "../../../src/audit/Tally.ts"
import { Tables } from "./Tables.ts"
import { utc } from "../../../src/domain/Calendar.ts"

/** What a test can read and change in the memory twin. */
export class AuditMemory extends Context.Service<
  AuditMemory,
  {
    readonly tables: Tables
    /** Closes an intent, as another replica does when it takes the process for dead. */
    abort(requestId: string): Effect.Effect<void>
    /** While down, nothing is read or written. Waiting rows are written when it is up again. */
    setDown(down: boolean): Effect.Effect<void>
    /** Takes down the ledger only. */
    setLedgerDown(down: boolean): Effect.Effect<void>
  }
>()("tollgate/audit/AuditMemory") {}

const unavailable = (cause: string) =>
  new Unavailable({ gate: "Audit", retryAfterS: 1, cause: new Error(cause) })

const endless = Number.POSITIVE_INFINITY

const make = (maxRows: number) =>
  Effect.gen(function* () {
    const tables = new Tables(() => 0)
    /** accounts of the keys that had an intent */
    const accounts = new Map<string, string>()
    tables.accountOf = (keyId) => accounts.get(keyId) ?? keyId
    let waiting: ReadonlyArray<AuditRow> = []
    let down = false
    let ledgerDown = false

    const write = (row: AuditRow): void => {
      if (tables.write([row]).length > 0) tables.correct([row])
      const [oldest] = tables.audit.keys()
      if (tables.audit.size <= maxRows || oldest === undefined) return
      tables.audit.delete(oldest)
      tables.corrections.delete(oldest)
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

    const audit = Audit.of({
      open: (queued) =>
        Effect.suspend(() => {
          if (down) return unavailable("down")
          const { caller } = queued.facts
          accounts.set(caller.keyId, caller.accountId)
          tables.open([intentRow(queued.facts, utc)], endless)
          return Effect.succeed(seal.Audit(queued, {}))
        }),
      progress: (requestId, usage, held = 0) =>
        void tables.renew([progressRow(requestId, { ...usage, held })], endless),
      close: (record) => {
        const admittedAt = tables.intents.get(record.arrival.requestId)?.admitted_at
        return put(completionRow(record, utc, admittedAt)) ? Effect.void : unavailable("down")
      },
      refuse: (record) =>
        put(auditRow(record, utc)) || record.status >= 400 ? Effect.void : unavailable("down"),
      tally: tally.add
    })

    const ledger = Ledger.of({
      spent: (owner, at) =>
        Effect.suspend(() => {
          if (down || ledgerDown) return new LedgerDown({ cause: new Error("down") })
          const { day, month, total, week } = tables.spent(owner, new Date(at).toISOString(), true)
          return Effect.succeed({ day, week, month, total })
        }),
      uses: (account, since, limit) =>
        Effect.suspend(() =>
          down || ledgerDown
            ? new LedgerDown({ cause: new Error("down") })
            : Effect.succeed(tables.uses(account, since).slice(0, limit))
        )
    })

    const memory = AuditMemory.of({
      tables,
      abort: (requestId) =>
        Effect.sync(() => {
          const intent = tables.intents.get(requestId)
          if (intent !== undefined) tables.write([tables.aborted(intent)])
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

export const layerMemory: Layer.Layer<Audit | Ledger | AuditMemory> = Layer.effectContext(make(endless))

/** Keeps the latest `maxRows` rows, for programs that run long and do not read the ledger. */
export const layerMemoryOf = (maxRows: number): Layer.Layer<Audit | Ledger | AuditMemory> =>
  Layer.effectContext(make(maxRows))
