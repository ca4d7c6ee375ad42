/** The state of one account in memory, and the arithmetic of a request on it. */
import type { Period } from "../../../domain/Limits.ts"
import { whole } from "../verdicts.ts"
import type { AccountLeases } from "./AccountLeases.ts"
import type { Bucket, Reservation } from "../../../domain/Reservation.ts"
import { ledgerLagMs } from "../bounds.ts"
import { type Noted, Window } from "./windows.ts"

/** A total. A new object under the same name means that it was loaded again. */
export interface Total {
  tokens: number
  readonly loadedAt: number
  readonly droppedAt: number
}

export interface AccountCounters {
  readonly requests: Window
  readonly tokens: Window
  readonly leases: AccountLeases
  readonly totals: Map<Bucket, Total>
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
  /** the totals that were charged with exactly what is held */
  readonly charged: Map<Period, Total>
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
  charged: new Map()
})

/** Moves the tokens a request has used in the window to `used` in all. */
export const note = (account: AccountCounters, request: Request, used: number): void => {
  request.noted = account.tokens.change(request.noted, used - request.used)
  request.used = used
}

export const charge = (total: Total, tokens: number): void => {
  total.tokens = Math.max(0, total.tokens + tokens)
}

/** How much of a request a total has for certain, and whether that is all it has. */
export const inTotal = (
  request: Request,
  period: Period,
  total: Total
): { readonly tokens: number; readonly exact: boolean } => {
  if (request.charged.get(period) === total) return { tokens: request.held, exact: true }
  const late = request.admittedAt <= total.loadedAt && request.admittedAt > total.loadedAt - ledgerLagMs
  return { tokens: late ? 0 : request.held, exact: false }
}
