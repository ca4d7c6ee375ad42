/**
 * The state of one running request: the draft of its audit row, and what its end depends on. The fields are mutable,
 * because only the fiber of the request and its finaliser write them, one after the other. It lives with the Scope of
 * the request.
 */
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import { isLikelyCut, wasCut } from "../domain/promptWindow.ts"
import { endUserOf } from "../domain/EndUser.ts"
import type { Evidence, Facts } from "../domain/Evidence.ts"
import type { InferenceKind, InferenceRequest } from "../domain/Inference.ts"
import type { Headroom } from "../domain/Limits.ts"
import type { Outcome } from "../domain/Outcome.ts"
import type { Transcript } from "../promptlog/PromptLog.ts"
import { makeRequestCost } from "./RequestCost.ts"

class Draft {
  readonly arrival: Arrival
  /** arrival in monotonic ms, the start of all durations */
  readonly arrivedMs: number
  /** whether its path is in the route table; any other path is text of the client */
  readonly served: boolean
  readonly cost = makeRequestCost()
  /** the caller, after authentication */
  key: Evidence<"KeyStore"> | undefined
  /** what it asks of a model, when its body is decoded */
  kind: InferenceKind | undefined
  /** the client's name of the model; after discovery, the discovered name */
  model: string | undefined
  /** whether the name was discovered for this caller; only such names become metric labels */
  modelResolved = false
  /** the name that was asked for, when it is an alias of the model */
  alias: string | undefined
  /** tokens of the model's context window; undefined: not known */
  window: number | undefined
  /** whether the model server is likely to cut the prompt */
  isLikelyCut = false
  /** whether it did, by its own counts; undefined: not known */
  truncated: boolean | undefined
  /** for `X-Num-Ctx`: the window in force, when the client asked for another one */
  numCtx: string | undefined
  /** for whom the request is, as its client claims */
  endUser: string | undefined
  streamed = false
  /** bytes of the body that was read to decode it */
  bodyBytes = 0
  /** keywords that were left out of the request's schema */
  relaxed: ReadonlyArray<string> = []
  /** whether the answer lists models from an expired list, which are none */
  listExpired = false
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

  /** Records the decoded request. */
  ask({ kind, model, relaxed, stream }: InferenceRequest): void {
    this.kind = kind
    this.model = model
    this.streamed = stream
    this.relaxed = relaxed ?? []
  }

  resolve({ alias, model, request, window }: Facts<"Discovery">): void {
    this.window = window
    this.isLikelyCut = isLikelyCut(request, window)
    const { askedNumCtx } = request
    if (askedNumCtx !== undefined && askedNumCtx !== window) this.numCtx = String(window ?? "default")
    this.model = model.name
    this.alias = alias
    this.modelResolved = true
  }

  expireList(): void {
    this.listExpired = true
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

  /** Records that the intent row exists. */
  open(): void {
    this.opened = true
  }

  transcribe(transcript: Transcript | undefined): void {
    this.transcript = transcript
  }

  /** Records the end, at `now` in monotonic ms. A request that still waits has waited until now. */
  end(outcome: Outcome, now: number): void {
    if (this.queuedSince !== undefined && this.isWaiting) this.stopWaiting(now - this.queuedSince)
    this.outcome = outcome
    const { final, permit } = this.cost
    if (final !== undefined && permit !== undefined) {
      this.truncated = wasCut(permit.facts.call.request, this.window, final)
    }
  }
}

export type RequestContext = Readonly<Draft>

/** `arrivedMs` is in monotonic ms. `served`: whether the path is in the route table. */
export const makeRequestContext = (arrival: Arrival, arrivedMs: number, served: boolean): RequestContext =>
  new Draft(arrival, arrivedMs, served)
