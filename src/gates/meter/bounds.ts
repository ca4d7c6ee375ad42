/** The figures that both stores of the Meter go by. The scripts in Redis are given them by `redis/scripts.ts`. */

/** Width of a window's bucket in milliseconds, and how many make a window: 60 s plus the bucket under way. */
export const bucketMs = 6000
export const bucketCount = 11

/** Longest time, in milliseconds, between an admission and its intent in a ledger that is read for a load. */
export const ledgerLagMs = 10_000

/** How many ids a survey names at once; the next survey names others, once these are settled. */
export const lapsedMost = 200
