/** The state of one account in memory, and the arithmetic of a request on it. */
import { whole } from "../verdicts.ts"
import type { AccountLeases } from "./AccountLeases.ts"
import type { CounterName, Reservation } from "../../../domain/Reservation.ts"
import { type Noted, Window } from "./windows.ts"

/** The tokens of a period. A new object under the same name means that it was loaded again. */
export interface Counter {
  tokens: number
  readonly loadedAt: number
  readonly droppedAt: number
}

/** The counters of an account or a group. */
export type CounterMap = Map<CounterName, Counter>

export interface GroupCounters {
  readonly totals: CounterMap
  /** moves on with every change of an account */
  mark: number
}

export interface AccountCounters {
  readonly requests: Window
  readonly tokens: Window
  readonly leases: AccountLeases
  readonly totals: CounterMap
  /** shared with the other accounts of the group */
  readonly group: GroupCounters
  touchedAt: number
  /** moves on with every change */
  mark: number
}

export interface Request {
  readonly admittedAt: number
  readonly available: number
  readonly slot: boolean
  /** when its place in the request window was taken; absent when the store forgot it meanwhile */
  readonly countedAt: number | undefined
  held: number
  used: number
  noted: ReadonlyArray<Noted>
  /** the counters that were charged with exactly what is held */
  readonly charged: Set<Counter>
}

/** Rebuilds a request that the store has lost, from what its owner reports. */
export const revived = ({ admittedAt, available, slot, held }: Reservation): Request => ({
  admittedAt,
  available,
  slot,
  countedAt: undefined,
  held: whole(held),
  used: 0,
  noted: [],
  charged: new Set()
})

/** Moves the tokens a request has used in the window to `used` in all. */
export const note = (account: AccountCounters, request: Request, used: number): void => {
  request.noted = account.tokens.change(request.noted, used - request.used)
  request.used = used
}

export const charge = (counter: Counter, tokens: number): void => {
  counter.tokens = Math.max(0, counter.tokens + tokens)
}

/**
 * How much of a request a counter has for certain, and whether that is all it has. `lagMs`: how long after its admission
 * a request may be missing in the ledger that was loaded.
 */
export const chargedOn = (
  request: Request,
  counter: Counter,
  lagMs: number
): { readonly tokens: number; readonly exact: boolean } => {
  if (request.charged.has(counter)) return { tokens: request.held, exact: true }
  const late = request.admittedAt <= counter.loadedAt && request.admittedAt > counter.loadedAt - lagMs
  return { tokens: late ? 0 : request.held, exact: false }
}

/** What is remembered of a request. */
export interface Memory {
  /** absent: the request is over */
  readonly request: Request | undefined
  readonly until: number
}
