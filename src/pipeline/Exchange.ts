/**
 * What is known of one request while it is under way: the draft of its audit row and the state its end depends
 * on. Plain mutable fields, because only the request's own fiber and its finaliser write them, one after the
 * other; it lives and dies with the request Scope.
 */
import type { Transcript } from "../audit/PromptLog.ts"
import type { Arrival } from "../audit/Record.ts"
import type { Caller } from "../domain/Caller.ts"
import type { Headroom } from "../domain/Limits.ts"
import type { Permit } from "../domain/Permit.ts"
import { type Counted, usageOf, noUsage, type Usage } from "../domain/Usage.ts"
import type { Reservation } from "../gates/Meter/Meter.ts"
import type { Seat } from "../infra/Roster.ts"

export class Exchange {
  readonly arrival: Arrival
  /** when it arrived, in monotonic ms: what durations are counted from */
  readonly arrivedMs: number
  caller: Caller | undefined
  /** as the client wrote it until discovery resolved it, then the discovered spelling */
  model: string | undefined
  /** whether the name is one discovery knows for this caller: only such names become metric labels */
  modelResolved = false
  streamed = false
  /** what the response headers will say */
  headroom: Headroom | undefined
  reservation: Reservation | undefined
  /** set when every gate has let the request through; says whether the backend was called */
  permit: Permit | undefined
  /** among the leases that are kept alive */
  lease: Seat | undefined
  /** the intent row exists */
  opened = false
  /** the backend has been called: from here on leaving is not free */
  sent = false
  promptEstimate = 0
  /** bytes of the prompt: no count of prompt tokens can honestly be far above it */
  promptBytes = 0
  /** output tokens the backend was allowed */
  maxTokens = 0
  /** frames that carried output, each taken for one token */
  frames = 0
  final: Counted | undefined
  concluded = false
  /** settled, but its slot stays taken until its answer is written */
  slotKept = false
  /** how it ended; set with `concluded` */
  outcome: { readonly status: number; readonly errorType?: string } | undefined
  /** set when the key has opted in to the prompt log */
  transcript: Transcript | undefined

  constructor(arrival: Arrival, arrivedMs: number) {
    this.arrival = arrival
    this.arrivedMs = arrivedMs
  }

  /** Tokens so far, as far as they can be told before the backend has counted. */
  get running(): Usage {
    return {
      tokensIn: this.promptEstimate,
      tokensOut: this.frames,
      source: this.frames > 0 ? "counted" : "estimated"
    }
  }

  /**
   * What the request is charged now that it is over. Never called and refused requests cost nothing; a backend
   * that failed before its first frame costs nothing; a client that left is charged for what was under way.
   */
  get usage(): Usage {
    if (!this.sent) return noUsage
    if (this.final !== undefined) {
      return usageOf(this.final, {
        frames: this.frames,
        promptEstimate: this.promptEstimate,
        promptBytes: this.promptBytes,
        maxTokens: this.maxTokens
      })
    }
    return this.running
  }
}
