/**
 * What is known of one request while it is under way: the draft of its audit row and the state its end depends
 * on. Plain mutable fields, because only the request's own fiber and its finaliser write them, one after the
 * other; it lives and dies with the request Scope.
 */
import type { Transcript } from "../promptlog/PromptLog.ts"
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import type { Headroom } from "../domain/Limits.ts"
import type { Permit } from "../domain/Permit.ts"
import {
  atMost,
  believedOutput,
  type Counted,
  noUsage,
  type Seen,
  type Usage,
  usageOf
} from "../domain/Usage.ts"
import type { Place } from "../gates/queue/FairQueue.ts"
import type { Reservation } from "../domain/Reservation.ts"
import type { Handle } from "../infra/DenseList.ts"
import { OutputCount } from "./OutputCount.ts"
import { noOutput, type OutputPlan } from "./outputPlan.ts"
import type { Speech } from "./Speech.ts"

export class RequestContext {
  readonly arrival: Arrival
  /** when it arrived, in monotonic ms: what durations are counted from */
  readonly arrivedMs: number
  caller: Caller | undefined
  /** as the client wrote it until discovery resolved it, then the discovered spelling */
  model: string | undefined
  /** whether the name is one discovery knows for this caller: only such names become metric labels */
  modelResolved = false
  streamed = false
  /** bytes of the body that was read to decode it */
  bodyBytes = 0
  /** keywords that were left out of the request's schema */
  relaxed: ReadonlyArray<string> = []
  /** what the response headers will say */
  headroom: Headroom | undefined
  reservation: Reservation | undefined
  /** since when it waits, or waited, in the line for the backend, in monotonic ms */
  queuedSince: number | undefined
  /** how long it waited, in ms; undefined while it waits and when there is no line */
  queuedMs: number | undefined
  /** its place at the backend, until that is given back */
  place: Place | undefined
  /** set when every gate has let the request through; says whether the backend was called */
  permit: Permit | undefined
  /** among the leases that are kept alive */
  lease: Handle | undefined
  /** the intent row exists */
  opened = false
  /** the backend has been called: from here on leaving is not free */
  sent = false
  promptEstimate = 0
  /** bytes of the prompt: no count of prompt tokens can honestly be far above it */
  promptBytes = 0
  /** output tokens the backend was allowed, in all its runs together */
  maxTokens = 0
  /** decided at admission: how much of the output is held, and in how many runs it is made */
  plan: OutputPlan = noOutput
  /** how its answer is spoken; undefined when the request itself makes the backend collect its output */
  speech: Speech | undefined
  /** monotonic ms of the call to the backend */
  sentAt = 0
  /** the most tokens that were ever held for it; undefined: nothing is held and nothing bounds the charge */
  granted: number | undefined
  /** output tokens, as far as frames tell */
  readonly output = new OutputCount()
  final: Counted | undefined
  finished = false
  /** settled, but its slot stays taken until its answer is written */
  slotKept = false
  /** how it ended; set with `finished` */
  outcome: { readonly status: number; readonly errorType?: string } | undefined
  /** set when the key has opted in to the prompt log */
  transcript: Transcript | undefined

  constructor(arrival: Arrival, arrivedMs: number) {
    this.arrival = arrival
    this.arrivedMs = arrivedMs
  }

  /** Output tokens by a final frame's own count; undefined when that cannot be believed. */
  claimedBy(final: Counted): number | undefined {
    return believedOutput(final, this.#seen)
  }

  /** Tokens so far, as far as they can be told before the backend has counted. */
  get running(): Usage {
    return this.#bounded({
      tokensIn: this.promptEstimate,
      tokensOut: this.output.estimate,
      source: this.output.tokens > 0 ? "counted" : "estimated"
    })
  }

  /**
   * What the request is charged now that it is over. Never called and refused requests cost nothing; a backend
   * that failed before its first frame costs nothing.
   */
  get usage(): Usage {
    if (!this.sent) return noUsage
    return this.final === undefined ? this.running : this.#bounded(usageOf(this.final, this.#seen))
  }

  /**
   * What the request is charged when its client left at `nowMs`. `likely` is what its model generates in a time. Nobody has
   * seen what was kept back, so that is charged by the time it took: not less than was seen, not more than was held.
   */
  usageWhenLeft(likely: (ms: number) => number, nowMs: number): Usage {
    if (!this.sent || this.final !== undefined) return this.usage
    const seen = this.output.estimate
    const generated = this.plan.collects
      ? Math.max(seen, likely(nowMs - this.sentAt))
      : seen + likely(this.#unseenMs(nowMs))
    if (generated === seen) return this.usage
    const tokensOut = Math.max(seen, Math.min(generated, this.maxTokens))
    return { ...this.#bounded({ ...this.running, tokensOut }), source: "estimated" }
  }

  /** The time in which a backend that need not collect may have generated what nobody saw. */
  #unseenMs(nowMs: number): number {
    if (this.speech?.begun === true) return this.speech.silentMsAt(nowMs)
    // A model that speaks has generated nothing before its first token: the request waits, or its prompt is read.
    return this.plan.holdsAll ? nowMs - this.sentAt : 0
  }

  get #seen(): Seen {
    return {
      frames: this.output.tokens,
      least: this.output.least,
      estimate: this.output.estimate,
      firstRun: this.plan.runs > 1 ? this.output.firstRun : 0,
      promptEstimate: this.promptEstimate,
      promptBytes: this.promptBytes,
      maxTokens: this.maxTokens
    }
  }

  /** Not more output than was held for it: what was not held was not shown either. */
  #bounded(usage: Usage): Usage {
    return this.granted === undefined ? usage : atMost(usage, this.granted - this.promptEstimate)
  }
}
