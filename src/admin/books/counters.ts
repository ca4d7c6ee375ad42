/**
 * Compares the live counters with the ledger, while requests may run.
 *
 * Counters and ledger are two stores, so one look proves nothing: a settlement or a correction may be between them. A
 * difference counts when several looks find the same, nothing of the owner was open in any of them, and its counters have not
 * changed between them. An owner that was in use in each look is not compared.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { Period } from "../../domain/Limits.ts"
import type { Account } from "../../domain/Reservation.ts"
import { accountOf } from "../../gates/keys/accounts.ts"
import { type Meter, MeterDown, type Snapshot } from "../../gates/meter/Meter.ts"
import { makeRowReader } from "../../infra/rows.ts"
import {
  compareWithLedger,
  driftOf,
  hasCounters,
  nameOf,
  surveyedOf,
  unread
} from "../../ledger/counterTruths.ts"
import { settleExpired } from "../../ledger/expiredHolds.ts"
import { CountersDown } from "../Errors.ts"
import { mostDifferences } from "./proof.ts"

type Totals = { readonly [P in Period]: number }

/** A key with those that replaced it, one of its users, or a tenant. */
export type Owner = Account | { readonly group: string; readonly key?: undefined; readonly user?: undefined }

export type CounterDifference = { readonly owner: Owner; readonly mark: number } & (
  | { readonly kind: "counter"; readonly counted: Snapshot["totals"]; readonly ledger: Totals }
  | { readonly kind: "hold"; readonly ids: ReadonlyArray<string> }
)

/** What one look at an owner found. */
type Look = "none" | "equal" | "busy" | "unreadable" | CounterDifference

/** How often, and for how long. */
export interface Looks {
  /** looks that must find the same difference; default 3 */
  readonly same?: number
  /** looks in all at what differs or is in use, unless it is waited for; default 10 */
  readonly most?: number
  /** milliseconds between two looks; default 1000 */
  readonly everyMs?: number
}

export interface ComparedCounters {
  readonly compared: number
  readonly busy: number
  readonly differences: ReadonlyArray<CounterDifference>
}

const Tenant = { group: Schema.String }
const Key = { ...Tenant, key: Schema.String }
const ownerRows = makeRowReader(
  () => "a key, a user or a tenant",
  Schema.Union([Schema.Struct({ ...Key, user: Schema.String }), Schema.Struct(Key), Schema.Struct(Tenant)])
)
const idRows = makeRowReader(() => "an intent", Schema.Struct({ id: Schema.String }))

const first = "00000000-0000-0000-0000-000000000000"
/** Owners read at once. */
const batch = 1000

const orCountersDown = <A, E, R>(work: Effect.Effect<A, E, R>) =>
  Effect.mapError(work, (error) =>
    error instanceof MeterDown ? new CountersDown({ cause: error.cause }) : error
  )

export const makeCounters = (pg: PgClient.PgClient, meter: Meter["Service"], looks: Looks = {}) => {
  const { everyMs = 1000, most = 10, same = 3 } = looks

  const accounts = (after: string) =>
    pg`SELECT DISTINCT ON (a.id) a.id::text AS key, a.tenant_id::text AS group
      FROM (SELECT ${accountOf(pg, "k")} AS id, k.tenant_id FROM api_keys k) a
      WHERE a.id > ${after}::text::uuid ORDER BY a.id LIMIT ${batch}`
  /** Those that used anything this month: the counters of the others are gone, or wait for their next request. */
  const users = (after: string) =>
    pg`SELECT DISTINCT ON (l.user_account) l.user_account::text AS user, ${accountOf(pg, "k")}::text AS key,
        k.tenant_id::text AS group
      FROM user_ledger l JOIN api_keys k ON k.id = l.key_id
      WHERE l.user_account > ${after}::text::uuid AND l.day >= date_trunc('month', now() AT TIME ZONE 'UTC')
      ORDER BY l.user_account LIMIT ${batch}`
  const tenants = (after: string) =>
    pg`SELECT id::text AS group FROM tenants WHERE id > ${after}::text::uuid ORDER BY id LIMIT ${batch}`

  /** Those of the requests that have no open intent: nobody will settle them. */
  const withoutIntent = (ids: ReadonlyArray<string>) =>
    Effect.map(
      idRows.all(pg`SELECT id FROM jsonb_array_elements_text(${pg.json(ids)}) AS id
          WHERE NOT EXISTS (SELECT FROM intents i WHERE i.request_id = id::uuid) ORDER BY id`),
      (rows) => rows.map(({ id }) => id)
    )

  const lookAt = Effect.fnUntraced(function* (owners: ReadonlyArray<Owner>, at: number) {
    const compared = yield* compareWithLedger(pg, meter, owners, at)
    const looks: Array<readonly [Owner, Look]> = []
    for (const { owner, survey, truth } of compared) {
      const { lapsed, mark, open, totals } = survey
      const ids = open === 0 && lapsed.length > 0 ? yield* withoutIntent(lapsed) : []
      const look = (): Look => {
        if (survey === unread) return "unreadable"
        if (ids.length > 0) return { kind: "hold", owner, mark, ids }
        if (open > 0 || lapsed.length > 0) return "busy"
        if (!hasCounters(survey)) return "none"
        if (truth === undefined || truth.open > 0) return "busy"
        if (driftOf(survey, truth) === 0) return "equal"
        return { kind: "counter", owner, mark, counted: totals, ledger: truth }
      }
      looks.push([owner, look()])
    }
    return looks
  })

  /**
   * `at`: an instant (epoch ms) of the day, month and total that are compared. `wait`: until each owner was seen at rest, for as
   * long as it takes.
   */
  const compare = Effect.fnUntraced(function* (at: number, wait: boolean) {
    /** owners that differ or are in use, by name, with what was found how often in a row */
    const waiting = new Map<string, { readonly owner: Owner; readonly look: Look; readonly times: number }>()
    let [compared, unwatched] = [0, 0]
    const note = (owner: Owner, look: Look): void => {
      const name = nameOf(owner)
      const before = waiting.get(name)
      if (look === "none" || look === "equal" || look === "unreadable") {
        if (look === "equal") compared += 1
        if (look === "unreadable") unwatched += 1
        waiting.delete(name)
      } else if (before === undefined && waiting.size >= mostDifferences) unwatched += 1
      else {
        const isSame = look !== "busy" && JSON.stringify(before?.look) === JSON.stringify(look)
        waiting.set(name, { owner, look, times: isSame ? (before?.times ?? 0) + 1 : 1 })
      }
    }
    const isSure = ({ look, times }: { readonly look: Look; readonly times: number }) =>
      look !== "busy" && times >= same

    for (const page of [accounts, users, tenants]) {
      for (let after = first; ;) {
        const owners: ReadonlyArray<Owner> = yield* ownerRows.all(page(after))
        for (const [owner, look] of yield* lookAt(owners, at)) note(owner, look)
        const last = owners.at(-1)
        if (last === undefined || owners.length < batch) break
        after = last.user ?? last.key ?? last.group
      }
    }
    for (let n = wait ? Number.NEGATIVE_INFINITY : 1; n < most; n += 1) {
      const open = [...waiting.values()].filter((one) => !isSure(one)).map(({ owner }) => owner)
      if (open.length === 0) break
      yield* Effect.sleep(everyMs)
      for (const [owner, look] of yield* lookAt(open, at)) note(owner, look)
    }
    const differences = [...waiting.values()].flatMap((one) =>
      isSure(one) && typeof one.look !== "string" ? [one.look] : []
    )
    return {
      compared: compared + differences.length,
      busy: waiting.size - differences.length + unwatched,
      differences
    } satisfies ComparedCounters
  }, orCountersDown)

  /** Mends what `compare` found, unless the counters have changed since. Returns whether it did. */
  const repair = Effect.fnUntraced(function* (difference: CounterDifference, at: number) {
    const { mark, owner } = difference
    if (difference.kind === "hold") {
      if (owner.key === undefined) return false
      yield* settleExpired(pg, meter, [{ account: owner, ids: difference.ids }], at)
      return true
    }
    return yield* meter.repair(yield* surveyedOf(pg, owner), at, mark, difference.ledger)
  }, orCountersDown)

  return { compare, repair }
}
