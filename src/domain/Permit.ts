/**
 * The right to call the backend once: one piece of evidence per gate, and nothing else makes one. A permit that was used
 * says that the backend was called, so the request costs its place in the counters however the call ends.
 *
 * `Proof extends Record<Gate, unknown>`: a gate added to `gates` breaks this file, the outage matrix and every
 * place that issues a permit, until all of them deal with it.
 */
import type { Caller } from "./Caller.ts"
import type { Gate } from "./Errors.ts"
import type { Evidence } from "./Evidence.ts"
import type { Headroom } from "./Limits.ts"
import type { Model } from "./Model.ts"
import type { Reservation } from "./Reservation.ts"

export interface Proof extends Record<Gate, unknown> {
  readonly KeyStore: Evidence<"KeyStore", Caller>
  readonly Discovery: Evidence<"Discovery", Model>
  readonly Limiter: Evidence<"Limiter", Headroom>
  readonly Budget: Evidence<"Budget", Reservation>
  readonly Audit: Evidence<"Audit", { readonly requestId: string }>
}

class Issued {
  readonly #proof: Proof
  #used = false
  constructor(proof: Proof) {
    this.#proof = proof
  }
  get caller(): Caller {
    return this.#proof.KeyStore.value
  }
  get model(): Model {
    return this.#proof.Discovery.value
  }
  get headroom(): Headroom {
    return this.#proof.Limiter.value
  }
  get reservation(): Reservation {
    return this.#proof.Budget.value
  }
  get requestId(): string {
    return this.#proof.Audit.value.requestId
  }
  /** Whether the backend was called with this permit. */
  get used(): boolean {
    return this.#used
  }
  /** Marks the call. A second one is a defect: it would be a call that nothing was reserved for. */
  use(): void {
    if (this.#used) throw new Error("a permit is good for one call")
    this.#used = true
  }
}

export type Permit = Issued

export const issue = (proof: Proof): Permit => new Issued(proof)
