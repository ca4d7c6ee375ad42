/**
 * What is known of one running request: how far it has come, and what its end depends on. The fiber of the request writes the
 * fields, and after it its finaliser. While an answer runs, the fiber that reads it and the heartbeat write `cost`. It lives with
 * the Scope of the request.
 */
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import { endUserOf, hashedUser } from "../domain/EndUser.ts"
import type { Evidence, Facts } from "../domain/Evidence.ts"
import type { RequestFacts } from "../domain/Inference.ts"
import type { Headroom } from "../domain/Limits.ts"
import type { Outcome } from "../domain/Outcome.ts"
import type { ServedRoute } from "../domain/Surface.ts"
import { isLikelyCut, wasCut } from "../domain/promptWindow.ts"
import type { RequestShare } from "../memory/MemoryLedger.ts"
import type { Transcript } from "../promptlog/transcript.ts"
import { RequestCost } from "./RequestCost.ts"

export class RequestContext {
  readonly arrival: Arrival
  /** arrival in monotonic ms, the start of all durations */
  readonly arrivedMs: number
  /** its row in the route table; undefined: its path is in none, and is text of the client */
  readonly route: ServedRoute | undefined
  readonly cost = new RequestCost()
  /** after authentication */
  key: Evidence<"KeyStore"> | undefined
  /** its memory, from its authentication on */
  share: RequestShare | undefined
  /** for whom the request is, as its client claims */
  endUser: string | undefined
  /** bytes of the body that was read to decode it */
  bodyBytes = 0
  /** what the audit stores of the decoded request, also when its model is refused */
  asked: Pick<RequestFacts, "model" | "stream"> | undefined
  /** what discovery knows of its model */
  resolved: Facts<"Discovery"> | undefined
  /** set when the answer lists models: then it tells what its key may do. None is in a list that has expired. */
  listed: { readonly isExpired: boolean } | undefined
  /** the limits for the response headers */
  headroom: Headroom | undefined
  /** start of its wait in the queue, in monotonic ms */
  queuedSince: number | undefined
  /** how long it waited, in ms; undefined while it waits and without a queue */
  queuedMs: number | undefined
  /** from its arrival to the first frame of its answer, in ms */
  firstFrameMs: number | undefined
  /** the intent row may exist */
  opening = false
  /** why it was refused, for the audit, and what its client is told in `X-Hint`, for its log line */
  refused: { readonly detail: string | undefined; readonly hint?: string | undefined } | undefined
  /** how it ended */
  outcome: Outcome | undefined
  /** whether the model server cut the prompt, by its own counts; undefined: not known */
  truncated: boolean | undefined
  /** set when the key has opted in to the prompt log */
  transcript: Transcript | undefined

  /** `arrivedMs` is in monotonic ms. */
  constructor(arrival: Arrival, arrivedMs: number, route: ServedRoute | undefined) {
    this.arrival = arrival
    this.arrivedMs = arrivedMs
    this.route = route
  }

  get caller(): Caller | undefined {
    return this.key?.facts.caller
  }

  /** The discovered name; before that, the client's name of the model. */
  get model(): string | undefined {
    return this.resolved?.model.name ?? this.asked?.model
  }

  /** Whether the model server is likely to cut the prompt. */
  get isLikelyCut(): boolean {
    return this.resolved !== undefined && isLikelyCut(this.resolved.request, this.resolved.window)
  }

  get isWaiting(): boolean {
    return this.queuedSince !== undefined && this.queuedMs === undefined
  }

  /** A claim replaces the one before it, and a blank one replaces nothing. */
  claimEndUser(claim: string | undefined): void {
    if (claim === undefined) return
    const [name, caller] = [endUserOf(claim), this.caller]
    if (name === undefined) return
    this.endUser = caller?.hashUsers === true ? hashedUser(caller.accountId, name) : name
  }

  /** Records the end, at `now` in monotonic ms. A request that still waits has waited until now. */
  end(outcome: Outcome, now: number): void {
    if (this.queuedSince !== undefined && this.queuedMs === undefined)
      this.queuedMs = Math.round(now - this.queuedSince)
    this.outcome = outcome
    const { final, permit } = this.cost
    if (final !== undefined && permit !== undefined)
      this.truncated = wasCut(permit.facts.call.request, permit.facts.window, final)
  }
}
