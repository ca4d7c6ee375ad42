/**
 * The state of one running request: the draft of its audit row, and what its end depends on. The fields are mutable,
 * because only the fiber of the request and its finaliser write them, one after the other. It lives with the Scope of
 * the request.
 */
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import { endUserOf } from "../domain/EndUser.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Headroom } from "../domain/Limits.ts"
import type { Model } from "../domain/Model.ts"
import type { Outcome } from "../domain/Outcome.ts"
import type { Transcript } from "../promptlog/PromptLog.ts"
import { makeRequestCost } from "./RequestCost.ts"

class Draft {
  readonly arrival: Arrival
  /** when it arrived, in monotonic ms: what durations are counted from */
  readonly arrivedMs: number
  /** whether its path is one of ours; any other is the client's own text */
  readonly served: boolean
  readonly cost = makeRequestCost()
  /** the caller, after authentication */
  key: Evidence<"KeyStore"> | undefined
  /** the spelling of the client, and after discovery the discovered name */
  model: string | undefined
  /** whether discovery knows the name for this caller; only such names become metric labels */
  modelResolved = false
  /** for whom the request is, as its client claims */
  endUser: string | undefined
  streamed = false
  /** bytes of the body that was read to decode it */
  bodyBytes = 0
  /** keywords that were left out of the request's schema */
  relaxed: ReadonlyArray<string> = []
  /** the limits for the response headers */
  headroom: Headroom | undefined
  /** start of its wait in the queue, in monotonic ms */
  queuedSince: number | undefined
  /** how long it waited, in ms; undefined while it waits and without a queue */
  queuedMs: number | undefined
  /** the intent row exists */
  opened = false
  /** how it ended */
  outcome: Outcome | undefined
  /** set when the key has opted in to the prompt log */
  transcript: Transcript | undefined

  constructor(arrival: Arrival, arrivedMs: number, served: boolean) {
    this.arrival = arrival
    this.arrivedMs = arrivedMs
    this.served = served
  }

  get caller(): Caller | undefined {
    return this.key?.facts.caller
  }

  get isWaiting(): boolean {
    return this.queuedSince !== undefined && this.queuedMs === undefined
  }

  identify(key: Evidence<"KeyStore">): void {
    this.key = key
  }

  /** A claim replaces the one before it, and a blank one replaces nothing. */
  claimEndUser(claim: string | undefined): void {
    this.endUser = endUserOf(claim) ?? this.endUser
  }

  readBody(bytes: number): void {
    this.bodyBytes = bytes
  }

  /** What is asked for. The name of its model is the client's until it is resolved. */
  ask({ model, relaxed, stream }: InferenceRequest): void {
    this.model = model
    this.streamed = stream
    this.relaxed = relaxed ?? []
  }

  resolve(model: Model): void {
    this.model = model.name
    this.modelResolved = true
  }

  show(headroom: Headroom): void {
    this.headroom = headroom
  }

  startWaiting(since: number): void {
    this.queuedSince = since
  }

  stopWaiting(queuedMs: number): void {
    this.queuedMs = Math.round(queuedMs)
  }

  /** The intent row is there. */
  open(): void {
    this.opened = true
  }

  transcribe(transcript: Transcript | undefined): void {
    this.transcript = transcript
  }

  /** `now`: in monotonic ms. One that still waits has waited until now. */
  end(outcome: Outcome, now: number): void {
    if (this.queuedSince !== undefined && this.isWaiting) this.stopWaiting(now - this.queuedSince)
    this.outcome = outcome
  }
}

export type RequestContext = Readonly<Draft>

/** `arrivedMs`: when it arrived, in monotonic ms. `served`: whether its path is one of ours. */
export const makeRequestContext = (arrival: Arrival, arrivedMs: number, served: boolean): RequestContext =>
  new Draft(arrival, arrivedMs, served)
