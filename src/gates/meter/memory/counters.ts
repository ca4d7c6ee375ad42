/** The counters of accounts and groups in memory: reading, loading, replacing and dropping them. */
import { counterNamesAt } from "../../../domain/Calendar.ts"
import { budgetNames, type Period, periods } from "../../../domain/Limits.ts"
import type { CounterName } from "../../../domain/Reservation.ts"
import { lifeOf, whole } from "../verdicts.ts"
import type { AccountCounters, Counter, CounterMap } from "./Account.ts"

type Totals = { readonly [P in Period]?: number }

/** The counters of `budgetNames` at an instant (epoch ms); undefined for one that is missing. */
export const countersAt = (account: AccountCounters, at: number): ReadonlyArray<Counter | undefined> => {
  const names = counterNamesAt(at)
  return budgetNames.map(({ period, scope }) =>
    (scope === "key" ? account : account.group).totals.get(names[period])
  )
}

export const existing = (counters: ReadonlyArray<Counter | undefined>): ReadonlyArray<Counter> =>
  counters.filter((counter) => counter !== undefined)

/** Tokens of the counters that there are at an instant (epoch ms). */
export const tokensAt = (counters: CounterMap, instant: number): Totals => {
  const names = counterNamesAt(instant)
  const found: { -readonly [P in Period]?: number } = {}
  for (const period of periods) {
    const counter = counters.get(names[period])
    if (counter !== undefined) found[period] = counter.tokens
  }
  return found
}

/** Adds counters that are missing. `loadedAt` is in epoch ms, `now` by the clock that drops them. */
export const addMissing = (
  counters: CounterMap,
  loaded: ReadonlyArray<{ readonly counter: CounterName; readonly tokens: number }>,
  loadedAt: number,
  now: number
): void => {
  for (const { counter, tokens } of loaded) {
    if (counters.has(counter)) continue
    counters.set(counter, { tokens: whole(tokens), loadedAt, droppedAt: now + lifeOf(counter) })
  }
}

/** Another load: what was charged to the old counters is in the ledger's figures. */
export const replaceCounters = (
  counters: CounterMap,
  instant: number,
  truth: Totals,
  loadedAt: number
): void => {
  const names = counterNamesAt(instant)
  for (const period of periods) {
    const [before, tokens] = [counters.get(names[period]), truth[period]]
    if (before === undefined || tokens === undefined) continue
    counters.set(names[period], { tokens: whole(tokens), loadedAt, droppedAt: before.droppedAt })
  }
}

export const dropOld = (counters: CounterMap, now: number): void => {
  for (const [name, { droppedAt }] of counters) if (droppedAt <= now) counters.delete(name)
}
