/**
 * The tables of audit and ledger in memory, and what their statements do to them. The twin of the audit (`Audit.ts`) and that of
 * Postgres (`seeded/Postgres.ts`) are two ways in; `test/contract/PostgresTwin.test.ts` compares them with a real one.
 */
import { Struct, type Types } from "effect"
import type { Correction as Corrected } from "../../../src/audit/corrections.ts"
import type { AuditRow, IntentRow, ProgressRow } from "../../../src/audit/rows.ts"
import { numberOf, utc } from "../../../src/domain/Calendar.ts"
import type { DayUse } from "../../../src/gates/limits/Ledger.ts"
import { type Period, periods } from "../../../src/domain/Limits.ts"
import { withoutDefaultTag } from "../../../src/domain/modelName.ts"
import { outcomes } from "../../../src/domain/Outcome.ts"
import type { CounterOwner } from "../../../src/domain/Reservation.ts"

export interface StoredIntent extends Types.Mutable<IntentRow> {
  readonly written: number
  leaseUntil: number
  tokens_out: number
}
/** The difference that a request's own process reports later, after another replica has closed the request. */
export interface StoredCorrection {
  readonly key_id: string
  readonly day: string
  readonly tokens_in: number
  readonly tokens_out: number
  readonly status: number
}
interface LedgerRow {
  readonly key_id: string
  readonly tenant_id: string
  /** null: in the ledger of keys, and in the sums by model */
  readonly user_account: string | null
  /** null: not in the sums by model */
  readonly model: string | null
  readonly day: string
  requests: number
  tokens: number
}
type Sums = { [P in Period]: number }

const dayOf = (iso: string): string => iso.slice(0, 10)

const add = (sums: Sums, day: string, at: string, tokens: number): void => {
  const [own, { counters }] = [utc.dayNumbered(numberOf(day)).counters, utc.dayNumbered(numberOf(dayOf(at)))]
  for (const period of periods) if (own[period] === counters[period]) sums[period] += tokens
}

export class Tables {
  /** ms, of the leases */
  readonly #now: () => number
  readonly intents = new Map<string, StoredIntent>()
  readonly audit = new Map<string, AuditRow>()
  readonly corrections = new Map<string, StoredCorrection>()
  readonly ledger = new Map<string, LedgerRow>()
  readonly userLedger = new Map<string, LedgerRow>()
  readonly usage = new Map<string, LedgerRow>()
  /** the account of a key that shares that of another */
  accountOf: (keyId: string) => string = (keyId) => keyId

  constructor(now: () => number) {
    this.#now = now
  }

  open(rows: ReadonlyArray<IntentRow>, leaseS: number): void {
    const [written, leaseUntil] = [this.#now(), this.#now() + 1000 * leaseS]
    for (const row of rows)
      if (!this.audit.has(row.request_id) && !this.intents.has(row.request_id))
        this.intents.set(row.request_id, { ...row, written, leaseUntil, tokens_out: 0 })
  }

  /** Returns the ids of requests that are neither open nor in the log. */
  renew(rows: ReadonlyArray<ProgressRow>, leaseS: number): ReadonlyArray<string> {
    for (const { held, request_id, tokens_in, tokens_out } of rows) {
      const intent = this.intents.get(request_id)
      if (intent === undefined) continue
      intent.leaseUntil = this.#now() + 1000 * leaseS
      intent.held = Math.max(intent.held, held)
      intent.tokens_in = Math.max(intent.tokens_in, tokens_in)
      intent.tokens_out = Math.max(intent.tokens_out, tokens_out)
    }
    return rows
      .map(({ request_id }) => request_id)
      .filter((id) => !this.intents.has(id) && !this.audit.has(id))
  }

  /** Ends intents and writes rows that are not there; returns the ids of those that are. */
  write(
    rows: ReadonlyArray<AuditRow>,
    onRow: (row: AuditRow, intent: StoredIntent | undefined) => void = () => undefined
  ): ReadonlyArray<string> {
    const there = rows.map(({ request_id }) => request_id).filter((id) => this.audit.has(id))
    for (const row of rows) {
      const intent = this.intents.get(row.request_id)
      this.intents.delete(row.request_id)
      if (this.audit.has(row.request_id)) continue
      onRow(row, intent)
      this.audit.set(row.request_id, row)
      if (row.admitted_at !== null)
        this.#book(row, row.day ?? dayOf(row.admitted_at), row.tokens_in + row.tokens_out, 1)
    }
    return there
  }

  correct(rows: ReadonlyArray<AuditRow>): ReadonlyArray<Corrected> {
    return rows.flatMap((row): ReadonlyArray<Corrected> => {
      const logged = this.audit.get(row.request_id)
      if (logged === undefined || logged.key_id === null || logged.tenant_id === null) return []
      const [tokens_in, tokens_out] = [row.tokens_in - logged.tokens_in, row.tokens_out - logged.tokens_out]
      const was_aborted = logged.error_type === outcomes.aborted.type
      const isLate =
        row.error_type === outcomes.unavailable.type &&
        logged.error_type !== row.error_type &&
        tokens_in === 0 &&
        tokens_out === 0
      if (this.corrections.has(row.request_id) || !(was_aborted || isLate)) return []
      const admitted = logged.admitted_at ?? logged.arrived_at
      const { key_id, model, tenant_id, user_account } = logged
      const [day, tokens] = [logged.day ?? dayOf(admitted), tokens_in + tokens_out]
      this.corrections.set(row.request_id, { key_id, day, tokens_in, tokens_out, status: row.status })
      if (this.ledger.has(`${key_id} ${day}`)) this.#book(logged, day, tokens, 0)
      const [account, admitted_at] = [this.accountOf(key_id), Date.parse(admitted)]
      return [
        {
          id: row.request_id,
          tenant_id,
          key_id,
          account,
          user_account,
          model,
          admitted_at,
          tokens,
          was_aborted
        }
      ]
    })
  }

  /** Open requests whose lease has ended, by their ids. */
  expired(but: ReadonlyArray<string> = []): ReadonlyArray<StoredIntent> {
    return [...this.intents.values()]
      .filter(({ leaseUntil, request_id }) => leaseUntil < this.#now() && !but.includes(request_id))
      .toSorted((one, two) => (one.request_id < two.request_id ? -1 : 1))
  }

  /** The row of an open request whose process died. */
  aborted(stored: StoredIntent): AuditRow {
    return {
      ...Struct.omit(stored, ["leaseUntil", "held", "written"]),
      tokens_cached: null,
      usage_source: "counted",
      status: outcomes.aborted.status,
      error_type: outcomes.aborted.type,
      detail: "gateway: its process died",
      latency_ms: 1,
      queued_ms: null,
      load_ms: null,
      truncated: null,
      repeats: 1
    }
  }

  /** What an owner has spent in the periods of `at`, and what its open requests hold when that counts. */
  spent({ group, key, model, user }: CounterOwner, at: string, held = false) {
    const isOwn = ({ key_id, model: used, tenant_id, user_account }: LedgerRow | StoredIntent): boolean =>
      user !== undefined
        ? user_account === user
        : key === undefined
          ? tenant_id === group
          : this.accountOf(key_id) === key && (model === undefined || withoutDefaultTag(used ?? "") === model)
    const sums: Sums = { day: 0, week: 0, month: 0, total: 0 }
    const ofKey = model === undefined ? this.ledger : this.usage
    for (const row of (user === undefined ? ofKey : this.userLedger).values())
      // A model has no budget longer than a day.
      if (isOwn(row) && (model === undefined || row.day >= dayOf(at))) add(sums, row.day, at, row.tokens)
    const open = [...this.intents.values()].filter(isOwn)
    if (held)
      for (const one of open)
        add(sums, one.day ?? dayOf(one.admitted_at), at, Math.max(one.held, one.tokens_in + one.tokens_out))
    return { ...sums, open: open.length }
  }

  /** What an account has used since a day, by day and model. */
  uses(account: string, since: string): ReadonlyArray<DayUse> {
    const uses = new Map<string, DayUse>()
    for (const row of this.audit.values()) {
      if (row.key_id === null || row.admitted_at === null || this.accountOf(row.key_id) !== account) continue
      const [day, model, more] = [
        row.day ?? dayOf(row.admitted_at),
        row.model ?? "",
        this.corrections.get(row.request_id)
      ]
      if (day < since) continue
      const { requests = 0, tokens_in = 0, tokens_out = 0 } = uses.get(`${day} ${model}`) ?? {}
      uses.set(`${day} ${model}`, {
        day,
        model,
        requests: requests + 1,
        tokens_in: tokens_in + row.tokens_in + (more?.tokens_in ?? 0),
        tokens_out: tokens_out + row.tokens_out + (more?.tokens_out ?? 0)
      })
    }
    const tokens = (use: DayUse) => use.tokens_in + use.tokens_out
    return [...uses.values()].toSorted(
      (one, two) => two.day.localeCompare(one.day) || tokens(two) - tokens(one)
    )
  }

  /** The tokens of a request in the log, corrected; null when it is not there. */
  booked(id: string): number | null {
    const [row, more] = [this.audit.get(id), this.corrections.get(id)]
    if (row === undefined) return null
    return row.tokens_in + row.tokens_out + (more === undefined ? 0 : more.tokens_in + more.tokens_out)
  }

  #book(
    { admitted_at, key_id, model, tenant_id, user_account: user }: AuditRow,
    day: string,
    tokens: number,
    requests: number
  ): void {
    if (key_id === null || tenant_id === null) return
    const book = (
      ledger: Map<string, LedgerRow>,
      name: string,
      of: { user?: string; model?: string | null }
    ) => {
      const { model = null, user: user_account = null } = of
      const row = ledger.get(name) ?? { key_id, tenant_id, user_account, model, day, requests: 0, tokens: 0 }
      row.requests += requests
      row.tokens += tokens
      ledger.set(name, row)
    }
    book(this.ledger, `${key_id} ${day}`, {})
    if (admitted_at !== null) book(this.usage, `${key_id} ${day} ${model}`, { model })
    if (user !== null) book(this.userLedger, `${user} ${key_id} ${day}`, { user })
  }
}
