/**
 * What is known of one running request: how far it has come, and what its end depends on. The fiber of the request writes the
 * fields, and after it its finaliser. While an answer runs, the fiber that reads it and the heartbeat write `cost`. It lives with
 * the Scope of the request.
 */
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import { endUserOf, hashedUser } from "../domain/EndUser.ts"
import type { RequestFacts } from "../domain/Inference.ts"
import type { Headroom } from "../domain/Limits.ts"
import type { ServedRoute } from "../domain/Surface.ts"
import { wasCut } from "../domain/promptWindow.ts"
import type { RequestShare } from "../memory/MemoryLedger.ts"
import type { Transcript } from "../promptlog/transcript.ts"
import { RequestCost } from "./RequestCost.ts"

/** What the client has said so far. */
export interface Said {
  /** bytes of the body that was read to decode it */
  readonly bodyBytes: number
  /** for whom the request is, as its client claims */
  readonly endUser?: string
  /** what the audit stores of the decoded request, also when its model is refused */
  readonly asked?: Pick<RequestFacts, "model" | "stream">
}

export class RequestContext {
  readonly arrival: Arrival
  /** arrival in monotonic ms, the start of all durations */
  readonly arrivedMs: number
  /** its row in the route table; undefined: its path is in none, and is text of the client */
  readonly route: ServedRoute | undefined
  readonly cost: RequestCost
  /** its memory, from its authentication on */
  share: RequestShare | undefined
  said: Said = { bodyBytes: 0 }
  /** set when the answer lists models: then it tells what its key may do. None is in a list that has expired. */
  listed: { readonly isExpired: boolean } | undefined
  /** the limits for the response headers */
  headroom: Headroom | undefined
  /** start of its wait in the queue, in monotonic ms */
  queuedSince: number | undefined
  /** set when the key has opted in to the prompt log */
  transcript: Transcript | undefined

  /** `arrivedMs` is in monotonic ms. */
  constructor(arrival: Arrival, arrivedMs: number, route: ServedRoute | undefined) {
    this.arrival = arrival
    this.arrivedMs = arrivedMs
    this.cost = new RequestCost(arrivedMs)
    this.route = route
  }

  get caller(): Caller | undefined {
    return this.cost.facts.caller
  }

  /** The discovered name; before that, the client's name of the model. */
  get model(): string | undefined {
    return this.cost.facts.model?.name ?? this.said.asked?.model
  }

  /** Whether the model server cut the prompt, by its own counts; undefined: not known. */
  get truncated(): boolean | undefined {
    const { final, permit } = this.cost
    return final === undefined || permit === undefined
      ? undefined
      : wasCut(permit.facts.call.request, permit.facts.window, final)
  }

  get isWaiting(): boolean {
    return this.queuedSince !== undefined && !("place" in this.cost.facts)
  }

  /** How long it waited, in ms; undefined while it waits and without a queue. A request that ended in the queue waited until then. */
  get queuedMs(): number | undefined {
    const { place } = this.cost.facts
    if (place !== undefined) return Math.round(place.queuedMs)
    const { ended } = this.cost
    return this.queuedSince === undefined || ended === undefined
      ? undefined
      : Math.round(ended.at - this.queuedSince)
  }

  /** A claim replaces the one before it, and a blank one replaces nothing. */
  claimEndUser(claim: string | undefined): void {
    if (claim === undefined) return
    const [name, caller] = [endUserOf(claim), this.caller]
    if (name === undefined) return
    const endUser = caller?.hashUsers === true ? hashedUser(caller.accountId, name) : name
    this.said = { ...this.said, endUser }
  }
}
