/**
 * The proof that all gates admitted a request: a chain with one link for each decision.
 *
 * Each gate takes the link before it and nothing else, so decisions about different requests cannot be mixed. The
 * last link is the `Permit`. It contains the call itself, so the backend gets what was admitted, and it is good for
 * one call.
 *
 * A new name in `gates` does not compile until `Carried` names its link. A link does not compile until another link
 * follows it, and `http/handle.ts` does not until it calls the new gate.
 */
import type { Arrival } from "./AuditRecord.ts"
import type { Caller } from "./Caller.ts"
import type { Gate } from "./Errors.ts"
import type { InferenceRequest, ModelCall, PreparedRequest } from "./Inference.ts"
import type { Headroom } from "./Limits.ts"
import type { Model } from "./Model.ts"
import type { Place, Reservation } from "./Reservation.ts"

/** A decoded request, before its model is resolved. */
export interface Asked {
  readonly arrival: Arrival
  /** as the client asked for it */
  readonly request: InferenceRequest
  /** maximal output tokens: the client's own bound, or the cap */
  readonly outputBound: number
  /** for whom the request is, as its client claims */
  readonly endUser?: string
}

/** What each link adds, and the link that it needs. `alias`: the name that was asked for, when it is an alias of the model. */
interface Chain {
  readonly KeyStore: { readonly after: undefined; readonly adds: { readonly caller: Caller } }
  readonly Discovery: {
    readonly after: "KeyStore"
    readonly adds: Omit<Asked, "request"> & {
      readonly request: PreparedRequest
      readonly model: Model
      readonly alias?: string
      /** tokens of the context window; undefined: not known */
      readonly window?: number
    }
  }
  readonly Limiter: {
    readonly after: "Discovery"
    readonly adds: {
      readonly reservation: Reservation
      /** tokens that the request is expected to use: what it asked for, even if less is held */
      readonly expectedTokens: number
      /** what is left for the caller after this reservation */
      readonly headroom: Headroom
      /** the call for the backend */
      readonly call: ModelCall
    }
  }
  readonly Queue: {
    readonly after: "Limiter"
    /** undefined: the request needs no place */
    readonly adds: { readonly place: Place | undefined }
  }
  readonly Audit: { readonly after: "Queue"; readonly adds: {} }
}

export type Link = keyof Chain

/** All facts at a link: those it adds, and those of all links before it. */
export type Facts<L extends Link> = Chain[L]["adds"] &
  (Chain[L]["after"] extends Link ? Facts<Chain[L]["after"]> : unknown)

/** The link with the decision of each gate. Limiter and Budget decide together, in one reservation. */
export type Carried = Complete<
  Gate,
  {
    readonly KeyStore: "KeyStore"
    readonly Discovery: "Discovery"
    readonly Limiter: "Limiter"
    readonly Budget: "Limiter"
    readonly Queue: "Queue"
    readonly Audit: "Audit"
  }
>

/** A table that names a link for each of `Gates`. */
export type Complete<Gates extends string, Table extends { readonly [G in Gates]: Link }> = Table

/** It is private to this module and has a private field, so a link cannot be written as a literal (`test/types/forgeries.ts` tries it). */
class Sealed<L extends Link> {
  readonly #link: L
  readonly facts: Facts<L>
  constructor(link: L, facts: Facts<L>) {
    this.#link = link
    this.facts = facts
  }
  get link(): L {
    return this.#link
  }
}

/**
 * The right to call the backend once. A used permit means that the backend was called, so the request costs
 * something.
 */
class OneCall extends Sealed<"Audit"> {
  #used = false
  get used(): boolean {
    return this.#used
  }
  /** Marks the permit as used and returns the call. A second use is a defect: nothing was reserved for it. */
  spend(): Facts<"Audit"> {
    if (this.#used) throw new Error("a permit is good for one call")
    this.#used = true
    return this.facts
  }
}

export type Permit = OneCall
export type Evidence<L extends Link> = L extends "Audit" ? Permit : Sealed<L>

type Before<L extends Link> = Chain[L]["after"] extends Link ? [before: Evidence<Chain[L]["after"]>] : []
type Seals = {
  readonly [L in Link]: (...args: [...Before<L>, adds: Chain[L]["adds"]]) => Evidence<L>
}

/** Every link except the last must have a next one; otherwise its gate could be left out. */
export type Followed = Complete<Exclude<Link, "Audit">, { readonly [L in Link as `${Chain[L]["after"]}`]: L }>

/**
 * Makes the link of a gate from the link before it and from what the gate decided. Each function is for the layers of one gate only
 * (`test/unit/architecture.test.ts`).
 */
export const seal: Seals = {
  KeyStore: (adds) => new Sealed("KeyStore", adds),
  Discovery: (key, adds) => new Sealed("Discovery", { ...key.facts, ...adds }),
  Limiter: (model, adds) => new Sealed("Limiter", { ...model.facts, ...adds }),
  Queue: (reserved, adds) => new Sealed("Queue", { ...reserved.facts, ...adds }),
  Audit: (queued) => new OneCall("Audit", queued.facts)
}
