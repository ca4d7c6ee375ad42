/**
 * A proof of the books, for operators: the audit with its corrections, the ledger, the live counters and the open intents
 * say the same.
 *
 * The database is read in one transaction that sees one moment. An audit row and its sum in the ledger are written in one
 * transaction, so requests that run make no difference between them. Counters change a moment before or after the ledger,
 * so a counter differs only when it differs in several looks in which nothing has changed and nothing was open.
 *
 * The audit is the truth for the ledger, and the ledger for the counters.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, References, Schema } from "effect"
import { dayMs, dayOf, monthOf } from "../../domain/Calendar.ts"
import { periods } from "../../domain/Limits.ts"
import { keysOfAccount, keysOfTenant } from "../../gates/keys/accounts.ts"
import type { Meter } from "../../gates/meter/Meter.ts"
import { makeRowReader, oneRow } from "../../infra/rows.ts"
import { withRegistryDownAfter } from "../Errors.ts"
import { largeRead } from "../rows.ts"
import { type Bounds, type Period, readPeriod } from "../records/period.ts"
import { type CounterDifference, type Looks, makeCounters, type Owner } from "./counters.ts"
import { countRunning, endLeftIntents, readLeftIntents } from "./intents.ts"
import {
  compareLedger,
  compareUsers,
  type Days,
  type LedgerDifference,
  nextDay,
  readDropped,
  repairLedger,
  repairUser
} from "./ledger.ts"
import { type Difference, mostNamed, mostRequests, type Proof } from "./proof.ts"
import { readRequests } from "./requests.ts"

/** The counters that the gateways use; undefined: they are in the memory of a gateway, where nobody else can read them. */
export class Counters extends Context.Service<Counters, Meter["Service"] | undefined>()(
  "tollgate/admin/books/Counters"
) {}

export interface BooksOptions {
  /** `CONCURRENCY_LEASE_S` */
  readonly leaseS: number
  readonly looks?: Looks
}

/** The whole UTC days of a period: the ledger has no parts of a day. */
const daysOf = ({ from, to }: Period): Days => ({
  from: dayOf(from.getTime()),
  to: dayOf(Math.ceil(to.getTime() / dayMs) * dayMs)
})

const later = (one: string, other: string | null): string => (other !== null && other > one ? other : one)

const names = makeRowReader(
  () => "a key",
  Schema.Struct({ tenant: Schema.NullOr(Schema.String), key: Schema.NullOr(Schema.String) })
)

const readNow = oneRow({ at: Schema.Finite })

/** Of an end user, its account: the name is in the audit. */
const withUser = (key: string, user: string | undefined): string =>
  user === undefined ? key : `${key}, user ${user}`

/** What one comparison found, before it is named. */
interface Found {
  readonly ledger: ReadonlyArray<LedgerDifference>
  readonly counters: ReadonlyArray<CounterDifference>
  readonly proof: Proof
}

const make = Effect.fnUntraced(function* ({ leaseS, looks }: BooksOptions) {
  const pg = yield* PgClient.PgClient
  const meter = yield* Counters
  const large = largeRead(pg)
  const counters = meter === undefined ? undefined : makeCounters(pg, meter, looks)
  const now = Effect.map(readNow(pg`SELECT (extract(epoch FROM now()) * 1000)::float8 AS at`), ({ at }) => at)

  const nameLedger = Effect.fnUntraced(function* (difference: LedgerDifference) {
    const { audit, day, key, keyId, ledger, tenant, tenantId, user } = difference
    const by = { in: audit.tokensIn - ledger.tokensIn, out: audit.tokensOut - ledger.tokensOut }
    const requests = yield* readRequests(pg, {
      keys: user === undefined ? pg`SELECT ${keyId}::text::uuid` : keysOfTenant(pg, tenantId),
      user,
      from: day,
      to: nextDay(day),
      exact:
        audit.requests - ledger.requests === 1
          ? pg`tokens_in = ${by.in}::float8 AND tokens_out = ${by.out}::float8`
          : pg`false`
    })
    return {
      kind: "ledger",
      tenant: tenant ?? tenantId,
      key: withUser(key ?? keyId, user),
      day,
      audit,
      ledger,
      ...requests
    } satisfies Difference
  })

  const nameOf = ({ group, key, user }: Owner) =>
    Effect.map(
      names.first(
        key === undefined
          ? pg`SELECT name AS tenant, NULL AS key FROM tenants WHERE id = ${group}::text::uuid`
          : pg`SELECT t.name AS tenant, k.prefix AS key FROM tenants t LEFT JOIN api_keys k ON k.id = ${key}::text::uuid
              WHERE t.id = ${group}::text::uuid`
      ),
      (found) => ({
        tenant: found?.tenant ?? group,
        key: key === undefined ? null : withUser(found?.key ?? key, user)
      })
    )

  const nameCounter = Effect.fnUntraced(function* (found: CounterDifference, at: number) {
    const { owner } = found
    const named = yield* nameOf(owner)
    if (found.kind === "hold") {
      const requests = found.ids.slice(0, mostRequests)
      const moreRequests = found.ids.length - requests.length
      return [{ kind: "hold", ...named, requests, moreRequests, match: "exact" } satisfies Difference]
    }
    const differing = periods.flatMap((period) => {
      const [counter, ledger] = [found.counted[period], found.ledger[period]]
      return counter === undefined || counter === ledger ? [] : [{ period, counter, ledger }]
    })
    const [first] = differing
    if (first === undefined) return []
    const requests = yield* readRequests(pg, {
      keys: owner.key === undefined ? keysOfTenant(pg, owner.group) : keysOfAccount(pg, owner.key),
      from: first.period === "day" ? dayOf(at) : `${monthOf(at)}-01`,
      to: dayOf(at + dayMs),
      exact: pg`tokens_in + tokens_out = ${Math.abs(first.counter - first.ledger)}::float8`
    })
    return differing.map((one) => ({ kind: "counter", ...named, ...one, ...requests }) satisfies Difference)
  })

  const compareDatabase = (period: Period) => {
    const days = daysOf(period)
    return large(
      600,
      Effect.gen(function* () {
        const { complete, dropped } = yield* readDropped(pg, days)
        const from = later(days.from, complete)
        const compared = { from, to: later(days.to, from) }
        const sums = yield* compareLedger(pg, compared)
        const users = yield* compareUsers(pg, compared)
        const differences = [...sums.differences, ...users.differences]
        const named = yield* Effect.forEach(differences.slice(0, mostNamed), nameLedger)
        const intents = yield* readLeftIntents(pg, leaseS)
        const running = yield* countRunning(pg, leaseS)
        const differing = sums.differing + users.differing
        return { complete, days, differences, differing, dropped, intents, named, running, sums }
      }),
      { snapshot: true }
    )
  }

  const compare = Effect.fnUntraced(function* (period: Period, wait: boolean) {
    const { complete, days, differences, differing, dropped, intents, named, running, sums } =
      yield* compareDatabase(period)
    const at = yield* now
    const counted = counters === undefined ? undefined : yield* counters.compare(at, wait)
    const ofCounters = yield* large(
      60,
      Effect.forEach((counted?.differences ?? []).slice(0, mostNamed), (one) => nameCounter(one, at))
    )
    const ofIntents = intents.slice(0, mostNamed).map(
      ({ count, inAudit, key, requests, tenant }) =>
        ({
          kind: "intent",
          tenant,
          key,
          inAudit,
          requests,
          moreRequests: count - requests.length,
          match: "exact"
        }) satisfies Difference
    )
    const proof: Proof = {
      days: { since: days.from, until: dayOf(Date.parse(days.to) - dayMs) },
      compared: { keysAndDays: sums.keysAndDays, audit: sums.audit, ledger: sums.ledger },
      dropped: complete === null || dropped === 0 ? undefined : { keysAndDays: dropped, before: complete },
      counters: counted === undefined ? undefined : { compared: counted.compared, busy: counted.busy },
      running,
      differences: [...named, ...ofCounters.flat(), ...ofIntents],
      moreDifferences:
        differing -
        named.length +
        Math.max(0, (counted?.differences.length ?? 0) - mostNamed) +
        (intents.length - ofIntents.length)
    }
    const found: Found = { ledger: differences, counters: counted?.differences ?? [], proof }
    return found
  })

  /** The ledger first: the counters get what it says. */
  const mend = Effect.fnUntraced(function* ({ counters: differing, ledger }: Found, wait: boolean) {
    const intents = yield* endLeftIntents(pg, leaseS)
    let [corrections, holds, repaired] = [0, 0, 0]
    for (const one of ledger)
      if (one.user === undefined) corrections += yield* large(60, repairLedger(pg, one))
      else yield* large(60, repairUser(pg, one, one.user))
    if (counters !== undefined) {
      const lookAgain = Effect.flatMap(now, (at) => counters.compare(at, wait))
      // What was mended above makes counters differ. So does a hold, once it is settled.
      let found = ledger.length + intents > 0 ? (yield* lookAgain).differences : differing
      while (found.length > 0) {
        const at = yield* now
        for (const one of found) {
          const isDone = yield* counters.repair(one, at)
          if (one.kind === "hold") holds += one.ids.length
          else if (isDone) repaired += 1
        }
        found = found.some(({ kind }) => kind === "hold")
          ? (yield* lookAgain).differences.filter(({ kind }) => kind === "counter")
          : []
      }
    }
    return {
      /** days of keys whose ledger is now as the audit says */
      ledger: ledger.length,
      /** corrections written for requests that the ledger has and the audit has lost */
      corrections,
      counters: repaired,
      holds,
      intents
    }
  })

  /** What is found is printed, not logged. */
  const bounded = <A, E, R>(work: Effect.Effect<A, E, R>, _: Bounds, wait = false) =>
    work.pipe(
      Effect.provideService(References.MinimumLogLevel, "None"),
      withRegistryDownAfter(wait ? "7 days" : "30 minutes")
    )

  return {
    /**
     * Compares, and changes nothing. Default period: from the first of the month of `until`, until today. `wait`: until the
     * counters of each owner were seen at rest.
     */
    compare: Effect.fnUntraced(function* (bounds: Bounds, wait = false) {
      const { proof } = yield* compare(yield* readPeriod(pg, bounds), wait)
      return proof
    }, bounded),
    /**
     * Compares, mends what differs, and compares again. It changes no audit row.
     *
     * - The ledger gets the sums of the audit. When the ledger has requests that the audit has lost, their tokens stay spent:
     *   each gets a correction under a new id.
     * - Counters get the figures of the ledger, when nothing of their owner is open.
     * - Requests of dead processes are ended as crash recovery ends them.
     */
    repair: Effect.fnUntraced(function* (bounds: Bounds, wait = false) {
      const period = yield* readPeriod(pg, bounds)
      const found = yield* compare(period, wait)
      const mended = yield* mend(found, wait)
      const { proof: after } = yield* compare(period, wait)
      return { before: found.proof, mended, after }
    }, bounded)
  }
})

export class Books extends Context.Service<Books>()("tollgate/admin/Books", { make }) {}

/** What a repair did. */
export type Mended = Effect.Success<ReturnType<Books["Service"]["repair"]>>["mended"]

export const layerPostgres = (
  options: BooksOptions
): Layer.Layer<Books, never, Counters | PgClient.PgClient> => Layer.effect(Books, make(options))
