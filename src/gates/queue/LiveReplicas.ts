/** The replicas that share the queue: their leases, and what they have reported after the store lost its state. */
import { allReportedMs } from "./QueueStore.ts"

export interface Replica {
  leaseEnd: number
  beats: number
  /** displaced requests that it may not know of, with their `Retry-After` */
  readonly displaced: Map<string, number>
  /** after a loss: it has named all its requests */
  complete: boolean
}

export class LiveReplicas {
  readonly #replicas = new Map<string, Replica>()
  /** after a loss: the replicas that were known before, as far as others named them */
  readonly #awaited = new Set<string>()
  readonly #lostAt: number
  #opensAt: number

  constructor(lostAt: number, opensAt: number) {
    this.#lostAt = lostAt
    this.#opensAt = opensAt
  }

  /** No place is given before: replicas may not have named theirs yet. */
  isOpen(now: number): boolean {
    return now >= this.#opensAt
  }

  /** Those that are alive; undefined after a loss, until all can be known again. */
  namesAt(now: number): ReadonlyArray<string> | undefined {
    return this.isOpen(now) ? [...this.#replicas.keys()] : undefined
  }

  get(name: string): Replica | undefined {
    return this.#replicas.get(name)
  }

  /** The replica is alive. */
  renew(name: string, leaseEnd: number): Replica {
    const replica = this.#replicas.get(name) ?? { leaseEnd, beats: 0, displaced: new Map(), complete: false }
    replica.leaseEnd = leaseEnd
    this.#replicas.set(name, replica)
    return replica
  }

  /** Forgets those whose lease is over, and returns their names. */
  bury(now: number): ReadonlyArray<string> {
    const dead = [...this.#replicas].flatMap(([name, { leaseEnd }]) => (leaseEnd > now ? [] : [name]))
    for (const name of dead) this.#replicas.delete(name)
    return dead
  }

  /**
   * After a loss: once all replicas that were known before have named their requests, places are given again. In its first beat
   * a replica may not name a request whose place it has just been told.
   */
  report(replica: Replica, knowsAll: boolean, peers: ReadonlyArray<string>): void {
    for (const peer of peers) this.#awaited.add(peer)
    replica.complete ||= replica.beats > 1 && knowsAll
    const isComplete = (name: string) => this.#replicas.get(name)?.complete === true
    if (this.#awaited.size > 0 && [...this.#awaited].every(isComplete))
      this.#opensAt = Math.min(this.#opensAt, this.#lostAt + allReportedMs)
  }

  /** How long until a lease ends, or places are given again; 0 when the replica has to report once more. */
  changesIn(now: number, name: string): number {
    const times = [...this.#replicas.values()].map(({ leaseEnd }) => leaseEnd)
    if (this.isOpen(now)) return Math.min(...times) - now
    if (this.#awaited.has(name) && this.#replicas.get(name)?.complete === false) return 0
    return Math.min(...times, this.#opensAt) - now
  }
}
