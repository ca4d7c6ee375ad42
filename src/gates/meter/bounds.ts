/** The figures that both stores of the Meter go by. The scripts in Redis are given them by `redis/scripts.ts`. */

/** Length of the windows in milliseconds: in none of this length is more than the limit. */
export const windowMs = 60_000

/**
 * What comes within the same half second leaves the window together, 60 s after the last of it. So a steady client gets at
 * least 60 of 60.5 of its limit, and a busy window has at most 121 groups.
 */
export const groupMs = 500

/** Longest time, in milliseconds, between an admission and its intent in a ledger that is read for a load, without a queue. */
export const ledgerLagMs = 10_000

/** How many ids a survey names at once; the next survey names others, once these are settled. */
export const lapsedMost = 200

/**
 * Seconds a request id is remembered after its last call, so that a late or repeated end changes nothing. The retries of a
 * settlement end after about a minute, and a request is renewed several times in a lease. Each request costs Redis some 250 bytes
 * for so long: 256 MB are enough for 1,100 requests a second. After a longer outage, recovery from a crash may count a request
 * twice, until the counters are compared with the ledger.
 */
export const rememberedS = (leaseS: number): number => Math.max(900, 2 * leaseS)
