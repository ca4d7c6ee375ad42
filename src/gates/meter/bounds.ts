/** The figures that both stores of the Meter go by. The scripts in Redis are given them by `redis/scripts.ts`. */
import { dayMs } from "../../domain/Calendar.ts"

/** Length of the windows in milliseconds: in none of this length is more than the limit. */
export const windowMs = 60_000

/**
 * What comes within the same half second leaves the window together, 60 s after the last of it. So a steady client gets at
 * least 60 of 60.5 of its limit, and a busy window has at most 121 groups.
 */
export const groupMs = 500

/**
 * Users of an account that have accounts of their own, in the store at once. Another one is refused until the one that was used
 * longest ago has neither a running request nor an entry in a window: two to three minutes after its last request, by default.
 */
const mostUsers = 10_000

/** How long the set of users is kept: as long as the counter of a month. */
export const usersKeptMs = 40 * dayMs

/** Longest time, in milliseconds, between an admission and its intent in a ledger that is read for a load, without a queue. */
const ledgerLagMs = 10_000

/** How many ids a survey names at once; the next survey names others, once these are settled. */
export const lapsedMost = 200

/**
 * Seconds a request id is remembered after its last call, so that a late or repeated end changes nothing. The retries of a
 * settlement end after about a minute, and a request is renewed several times in a lease. Each request costs Redis some 250 bytes
 * for so long: 256 MB are enough for 1,100 requests a second. After a longer outage, recovery from a crash may count a request
 * twice, until the counters are compared with the ledger.
 */
const rememberedS = (leaseS: number): number => Math.max(900, 2 * leaseS)

/** What both stores are told at the start. */
export interface MeterOptions {
  /** seconds a slot and its hold live without being renewed (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** seconds a request id is remembered after its last verb. `rememberedS` */
  readonly rememberS?: number
  /** how long a request with a reservation may wait in the queue before its intent is written (`QUEUE_MAX_WAIT_MS`). 0 */
  readonly queueMaxWaitMs?: number
  /** users of an account with accounts of their own. `mostUsers` */
  readonly mostUsers?: number
}

/** How long what lives, in milliseconds. */
export const livesOf = ({ leaseS, queueMaxWaitMs = 0, rememberS = rememberedS(leaseS) }: MeterOptions) => ({
  leaseMs: leaseS * 1000,
  rememberMs: rememberS * 1000,
  /** how long after its admission a request may be missing in the ledger */
  ledgerLagMs: ledgerLagMs + queueMaxWaitMs
})

export const mostUsersOf = (options: MeterOptions): number => options.mostUsers ?? mostUsers
