/**
 * The comparison of live counters with the ledger: a look at owners, and how what it found is mended. The gateways look every few
 * seconds (`CounterReconciler.ts`), and `tollgate reconcile` when it is asked.
 *
 * Only what is at rest can be compared: counters and ledger are two stores. The counters are read first, then the ledger. A request
 * in progress at either moment shows as an open lease or an open intent. A request that came and went in between changes the mark
 * of the counters, and then they are not mended.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { Calendar } from "../domain/Calendar.ts"
import { periods } from "../domain/Limits.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import type { Meter, Snapshot, Surveyed } from "../gates/meter/Meter.ts"
import { timeoutDetached } from "../infra/time.ts"
import { readStates, settleExpired } from "./expiredHolds.ts"
import { idOf, readTotals, type Totals } from "./totals.ts"

/** A tenant with more accounts is not compared: Redis reads all of them in one script. */
const mostAccounts = 2000

export const nameOf = ({ group, key = "", model = "", user = "" }: CounterOwner): string =>
  `${group}/${key}/${user}/${model}`

/** What one look at the counters of an owner found. */
export type Look<O extends CounterOwner = CounterOwner> = {
  readonly owner: O
  readonly surveyed: Surveyed
  readonly survey: Snapshot
} &
  /** `none`: there are no counters; `unread`: a tenant with too many accounts */
  (
    | { readonly kind: "none" | "equal" | "busy" | "unread" }
    /** requests that have ended, whose tokens the counters still hold */
    | { readonly kind: "hold"; readonly ids: ReadonlyArray<string> }
    /** `by`: tokens, summed over the periods */
    | { readonly kind: "counter"; readonly ledger: Totals; readonly by: number }
  )

const decodeAccounts = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ account: Schema.String })))

/** The accounts of a tenant, one more than `mostAccounts` at most. In one order, because the mark of their counters depends on it. */
export const readAccounts = (pg: PgClient.PgClient, tenant: string) =>
  timeoutDetached("3 seconds")(pg`
    SELECT DISTINCT ${accountOf(pg, "k")}::text AS account FROM api_keys k
    WHERE k.tenant_id = ${tenant}::text::uuid ORDER BY account LIMIT ${mostAccounts + 1}`).pipe(
    Effect.flatMap(decodeAccounts),
    Effect.map((rows) => rows.map(({ account }) => account))
  )

const hasCounters = ({ totals }: Snapshot): boolean => periods.some((period) => totals[period] !== undefined)

const driftOf = ({ totals }: Snapshot, ledger: Totals): number =>
  periods.reduce((sum, period) => sum + Math.abs((totals[period] ?? ledger[period]) - ledger[period]), 0)

const unread: Snapshot = { totals: {}, open: 0, lapsed: [], mark: 0 }

/** Whether nothing will change the finding: it is right, there is nothing to compare, or nobody can. */
export const isFinal = ({ kind }: Look): boolean => kind === "none" || kind === "equal" || kind === "unread"

export interface Looks {
  /** looks that must find the same difference; default 3 */
  readonly same?: number
  /** looks in all at what differs or is in use; default 10 */
  readonly most?: number
  /** milliseconds between two looks; default 1000 */
  readonly everyMs?: number
}

export const makeComparison = (pg: PgClient.PgClient, meter: Meter["Service"], { dayAt }: Calendar) => {
  const survey = Effect.fnUntraced(function* <O extends CounterOwner>(owner: O, at: number) {
    const { group, key, model, user } = owner
    if (key !== undefined) {
      const surveyed: Surveyed = {
        group,
        key,
        ...(user === undefined ? {} : { user }),
        ...(model === undefined ? {} : { model })
      }
      return { owner, surveyed, survey: yield* meter.snapshot(surveyed, at) }
    }
    const surveyed: Surveyed = { group, accounts: yield* readAccounts(pg, group) }
    const isTooLarge = surveyed.accounts.length > mostAccounts
    return { owner, surveyed, survey: isTooLarge ? unread : yield* meter.snapshot(surveyed, at) }
  })

  /** `at`: an instant (epoch ms) of the periods that are compared */
  const look = Effect.fnUntraced(function* <O extends CounterOwner>(owners: ReadonlyArray<O>, at: number) {
    const found = yield* Effect.forEach(owners, (owner) => survey(owner, at), { concurrency: 8 })
    const resting = found.filter(
      ({ survey }) => hasCounters(survey) && survey.open === 0 && survey.lapsed.length === 0
    )
    const totals = yield* readTotals(
      pg,
      resting.map(({ owner }) => owner),
      dayAt(at)
    )
    const states = yield* readStates(
      pg,
      found.flatMap(({ survey }) => survey.lapsed)
    )
    const ended = new Set(states.flatMap(({ id, open }) => (open ? [] : [id])))
    return found.map((one): Look<O> => {
      const { lapsed, open } = one.survey
      if (one.survey === unread) return { ...one, kind: "unread" }
      const ids = lapsed.filter((id) => ended.has(id))
      if (ids.length > 0) return { ...one, kind: "hold", ids }
      if (open > 0 || lapsed.length > 0) return { ...one, kind: "busy" }
      if (!hasCounters(one.survey)) return { ...one, kind: "none" }
      const ledger = totals.get(idOf(one.owner))
      if (ledger === undefined || ledger.open > 0) return { ...one, kind: "busy" }
      const by = driftOf(one.survey, ledger)
      return by === 0 ? { ...one, kind: "equal" } : { ...one, kind: "counter", ledger, by }
    })
  })

  return {
    look,
    /**
     * Looks again at what differs or is in use, until each was seen at rest or `most` looks are over. A settlement or a correction may
     * be between the two stores, so a difference counts when several looks find the same, nothing of the owner was open in any of them,
     * and its counters have not changed between them. What does not count is busy.
     */
    watch: Effect.fnUntraced(function* <O extends CounterOwner>(
      first: ReadonlyArray<Look<O>>,
      at: number,
      { everyMs = 1000, most = 10, same = 3 }: Looks
    ) {
      const sure: Array<Look<O>> = []
      let left = first.map((found) => ({ found, times: 1 }))
      for (let n = 1; ; n += 1) {
        sure.push(...left.flatMap(({ found, times }) => (isFinal(found) || times >= same ? [found] : [])))
        left = left.filter(({ found, times }) => !isFinal(found) && times < same)
        if (left.length === 0 || n >= most) break
        yield* Effect.sleep(everyMs)
        const before = new Map(left.map(({ found, times }) => [JSON.stringify(found), times]))
        const again = yield* look(
          left.map(({ found }) => found.owner),
          at
        )
        left = again.map((found) => {
          const isQuiet = found.kind !== "busy" && found.survey.open === 0
          return { found, times: isQuiet ? 1 + (before.get(JSON.stringify(found)) ?? 0) : 0 }
        })
      }
      return [...sure, ...left.map(({ found }): Look<O> => ({ ...found, kind: "busy" }))]
    }),
    /** Mends what a look found, unless the counters have changed since. Returns whether it did. */
    mend: (found: Look, at: number) => {
      const { surveyed } = found
      if (found.kind === "counter") return meter.repair(surveyed, at, found.survey.mark, found.ledger)
      return found.kind === "hold" && surveyed.key !== undefined
        ? Effect.as(settleExpired(pg, meter, surveyed, found.ids, at), true)
        : Effect.succeed(false)
    }
  }
}
