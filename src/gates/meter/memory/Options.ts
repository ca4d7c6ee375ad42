/** How long the counters in memory remember what. */
export interface Options {
  /** seconds a slot and its hold live without being renewed (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** seconds a request id is remembered after its last verb. `rememberedS` */
  readonly rememberS?: number
  /** how long a request with a reservation may wait in the queue before its intent is written (`QUEUE_MAX_WAIT_MS`). 0 */
  readonly queueMaxWaitMs?: number
  /** the epoch ms of a given instant; default: instants are given as epoch ms */
  readonly epoch?: (now: number) => number
}
