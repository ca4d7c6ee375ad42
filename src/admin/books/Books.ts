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
import { Context, Effect, Layer, Record, References } from "effect"
import { dateNumbered, numberOf, TimeZone } from "../../domain/Calendar.ts"
import { periods } from "../../domain/Limits.ts"
import { keysOfAccount, keysOfTenant } from "../../gates/keys/accounts.ts"
import { type Meter, MeterDown } from "../../gates/meter/Meter.ts"
import {
  compareWithAudit,
  type LedgerDifference,
  nextDay,
  readDropped,
  repairFromAudit
} from "../../ledger/audited.ts"
import { isFinal, type Look, type Looks, makeComparison } from "../../ledger/comparison.ts"
import { CountersDown, withRegistryDownAfter } from "../Errors.ts"
import { type Bounds, type Period, readNow, readPeriod } from "../period.ts"
import { largeRead } from "../rows.ts"
import { endLeftIntents, readIntents } from "./intents.ts"
import { forEachOwner, type Owner } from "./owners.ts"
import { type Difference, mostDifferences, mostNamed, mostRequests, type Proof } from "./proof.ts"
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

/**
 * What a repair did: days of keys and users whose ledger is now as the audit says, corrections written for requests that the audit has
 * lost, owners whose counters are now as the ledger says, requests that had ended and still held tokens, intents that were ended.
 */
const noneMended = { ledger: 0, corrections: 0, counters: 0, holds: 0, intents: 0 }
export type Mended = typeof noneMended

/** Comparisons after which a repair ends: what one mends makes others differ, the ledger the counters and a hold its account. */
const mostRounds = 4

const later = (one: string, other: string | null): string => (other !== null && other > one ? other : one)

/** With the account of an end user, whose name is in the audit, or with the model. */
const withPart = (key: string, user: string | null = null, model: string | null = null): string =>
  key + (user === null ? "" : `, user ${user}`) + (model === null ? "" : `, model ${model}`)

const make = Effect.fnUntraced(function* ({ leaseS, looks }: BooksOptions) {
  const pg = yield* PgClient.PgClient
  const calendar = yield* TimeZone
  const { dayAt } = calendar
  const meter = yield* Counters
  const large = largeRead(pg)
  const comparison = meter === undefined ? undefined : makeComparison(pg, meter, calendar)

  /** Looks at all counters. `wait`: until each owner was seen at rest, for as long as it takes. */
  const lookAtAll = Effect.fnUntraced(function* (wait: boolean) {
    if (comparison === undefined) return undefined
    const at = yield* readNow(pg)
    let [compared, busy] = [0, 0]
    const open: Array<Look<Owner>> = []
    const count = ({ kind }: Look) => {
      if (kind === "busy" || kind === "unread") busy += 1
      else if (kind !== "none") compared += 1
    }
    yield* forEachOwner(pg, dayAt(at), (owners) =>
      Effect.map(comparison.look(owners, at), (found) => {
        for (const one of found) {
          if (isFinal(one)) count(one)
          else if (open.length < mostDifferences) open.push(one)
          else busy += 1
        }
      })
    )
    const forever = wait ? { most: Number.POSITIVE_INFINITY } : {}
    const found = yield* comparison.watch(open, at, { ...looks, ...forever })
    found.forEach(count)
    return {
      at,
      compared,
      busy,
      differences: found.filter(({ kind }) => kind === "hold" || kind === "counter")
    }
  })

  const nameLedger = Effect.fnUntraced(function* (difference: LedgerDifference) {
    const { audit, day, key, keyId, ledger, tenant, tenantId, user } = difference
    const by = { in: audit.tokensIn - ledger.tokensIn, out: audit.tokensOut - ledger.tokensOut }
    const requests = yield* readRequests(pg, {
      keys: user === null ? pg`SELECT ${keyId}::text::uuid` : keysOfTenant(pg, tenantId),
      user: user ?? undefined,
      from: day,
      to: nextDay(day),
      exact:
        audit.requests - ledger.requests === 1
          ? pg`tokens_in = ${by.in}::float8 AND tokens_out = ${by.out}::float8`
          : pg`false`
    })
    const named = { tenant: tenant ?? tenantId, key: withPart(key ?? keyId, user) }
    return { kind: "ledger", ...named, day, audit, ledger, ...requests } satisfies Difference
  })

  const nameCounter = Effect.fnUntraced(function* (found: Look<Owner>, at: number) {
    const { group, key, model, prefix, tenant, user } = found.owner
    const named = { tenant, key: key === undefined ? null : withPart(prefix ?? key, user, model) }
    if (found.kind === "hold") {
      const requests = found.ids.slice(0, mostRequests)
      const moreRequests = found.ids.length - requests.length
      return [{ kind: "hold", ...named, requests, moreRequests, match: "exact" } satisfies Difference]
    }
    if (found.kind !== "counter") return []
    const differing = periods.flatMap((period) => {
      const [counter, ledger] = [found.survey.totals[period], found.ledger[period]]
      return counter === undefined || counter === ledger ? [] : [{ period, counter, ledger }]
    })
    const [first] = differing
    if (first === undefined) return []
    const { dates } = dayAt(at)
    const requests = yield* readRequests(pg, {
      keys: key === undefined ? keysOfTenant(pg, group) : keysOfAccount(pg, key),
      from: dates[first.period === "total" ? "month" : first.period].from,
      to: dates.day.to,
      exact: pg`tokens_in + tokens_out = ${Math.abs(first.counter - first.ledger)}::float8`
    })
    return differing.map((one) => ({ kind: "counter", ...named, ...one, ...requests }) satisfies Difference)
  })

  /** The whole days of the period: the ledger has no parts of a day. */
  const compareDatabase = ({ from, to }: Period) =>
    large(
      600,
      Effect.gen(function* () {
        const days = { from: dayAt(from.getTime()).date, to: dayAt(to.getTime() - 1).dates.day.to }
        const { complete, dropped } = yield* readDropped(pg, days)
        const first = later(days.from, complete)
        const kept = { from: first, to: later(days.to, first) }
        const keys = yield* compareWithAudit(pg, "ledger", kept, mostDifferences)
        const users = yield* compareWithAudit(pg, "user_ledger", kept, mostDifferences)
        const differences = [...keys.differences, ...users.differences]
        const named = yield* Effect.forEach(differences.slice(0, mostNamed), nameLedger)
        const more = keys.differing + users.differing - named.length
        return {
          complete,
          days,
          differences,
          dropped,
          keys,
          more,
          named,
          ...(yield* readIntents(pg, leaseS))
        }
      }),
      { snapshot: true }
    )

  const compare = Effect.fnUntraced(function* (period: Period, wait: boolean) {
    const { complete, days, differences, dropped, keys, left, more, named, running } =
      yield* compareDatabase(period)
    const counted = yield* lookAtAll(wait)
    const ofCounters = yield* large(
      60,
      Effect.forEach((counted?.differences ?? []).slice(0, mostNamed), (one) =>
        nameCounter(one, counted?.at ?? 0)
      )
    )
    const ofIntents = left.slice(0, mostNamed).map(({ count, requests, ...one }) => {
      const moreRequests = count - requests.length
      return { kind: "intent", ...one, requests, moreRequests, match: "exact" } satisfies Difference
    })
    const proof: Proof = {
      days: { since: days.from, until: dateNumbered(numberOf(days.to) - 1) },
      compared: { keysAndDays: keys.compared, audit: keys.audit, ledger: keys.ledger },
      dropped: complete === null || dropped === 0 ? undefined : { keysAndDays: dropped, before: complete },
      counters: counted && { compared: counted.compared, busy: counted.busy },
      running,
      differences: [...named, ...ofCounters.flat(), ...ofIntents],
      moreDifferences:
        more + Math.max(0, (counted?.differences.length ?? 0) - mostNamed) + (left.length - ofIntents.length)
    }
    return { at: counted?.at ?? 0, ledger: differences, counters: counted?.differences ?? [], proof }
  })
  type Found = Effect.Success<ReturnType<typeof compare>>

  /** The ledger first: the counters get what it says, once they are compared with it again. */
  const mend = Effect.fnUntraced(function* ({ at, counters, ledger }: Found) {
    const intents = yield* endLeftIntents(pg, leaseS)
    let [corrections, holds, repaired] = [0, 0, 0]
    for (const one of ledger) corrections += yield* large(60, repairFromAudit(pg, one))
    if (comparison !== undefined && ledger.length + intents === 0)
      for (const one of counters) {
        const isMended = yield* comparison.mend(one, at)
        if (one.kind === "hold") holds += one.ids.length
        else if (isMended) repaired += 1
      }
    return { ledger: ledger.length, corrections, counters: repaired, holds, intents }
  })

  /** What is found is printed, not logged. */
  const bounded = <A, E, R>(work: Effect.Effect<A, E, R>, _: Bounds, wait = false) =>
    work.pipe(
      Effect.mapError((error) =>
        error instanceof MeterDown ? new CountersDown({ cause: error.cause }) : error
      ),
      Effect.provideService(References.MinimumLogLevel, "None"),
      withRegistryDownAfter(wait ? "7 days" : "30 minutes")
    )

  return {
    /**
     * Compares, and changes nothing. Default period: from the first of the month of `until`, until today. `wait`: until the
     * counters of each owner were seen at rest.
     */
    compare: Effect.fnUntraced(function* (bounds: Bounds, wait = false) {
      const { proof } = yield* compare(yield* readPeriod(pg, bounds, calendar), wait)
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
      const period = yield* readPeriod(pg, bounds, calendar)
      const before = yield* compare(period, wait)
      let [found, mended] = [before, noneMended]
      for (let round = 0; round < mostRounds; round += 1) {
        const more = yield* mend(found)
        if (Object.values(more).every((count) => count === 0)) break
        mended = Record.map(mended, (count, of) => count + more[of])
        found = yield* compare(period, wait)
      }
      return { before: before.proof, mended, after: found.proof }
    }, bounded)
  }
})

export class Books extends Context.Service<Books>()("tollgate/admin/Books", { make }) {}

export const layerPostgres = (
  options: BooksOptions
): Layer.Layer<Books, never, Counters | PgClient.PgClient> => Layer.effect(Books, make(options))
