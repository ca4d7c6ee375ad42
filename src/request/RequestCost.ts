/** The cost of one request: what it holds of the counters, what it has used, and what it is charged. */
import type { Evidence, Permit } from "../domain/Evidence.ts"
import type { OutputPlan } from "../domain/Inference.ts"
import { noOutput } from "../domain/outputPlan.ts"
import type { Place, Reservation } from "../domain/Reservation.ts"
import {
  atMost,
  believedOutput,
  type Counted,
  noUsage,
  type Seen,
  type Usage,
  usageOf
} from "../domain/Usage.ts"
import { OutputCount } from "./OutputCount.ts"
import type { OutputTiming } from "./OutputTiming.ts"

export class RequestCost {
  /** the present hold; undefined before the Limiter has admitted it */
  reservation: Reservation | undefined
  /** the largest hold so far; undefined: nothing is held and nothing bounds the charge */
  granted: number | undefined
  /** when its lease began, in the time of `LeaseKeeper` */
  leasedAt = 0
  /** its place at the backend */
  place: Place | undefined
  /** set when every gate has admitted the request; shows whether the backend was called */
  permit: Permit | undefined
  /** the backend was called, and has not failed before its first frame; then leaving costs something */
  sent = false
  /** monotonic ms of the call to the backend */
  sentAt = 0
  promptEstimate = 0
  /** bytes of the prompt, which bound the believable count of prompt tokens */
  promptBytes = 0
  /** output tokens that the backend may generate in all runs together */
  maxTokens = 0
  /** decided at admission: how much of the output is held, and in how many runs it is made */
  plan: OutputPlan = noOutput
  /**
   * measures whether the answer is streamed as it is generated; undefined when the request makes the backend collect
   * its output
   */
  timing: OutputTiming | undefined
  /** the output, counted by its frames */
  readonly output = new OutputCount()
  /** the counts at the end of the answer */
  final: Counted | undefined
  /** nothing is held any more */
  settled = false
  /** settled, and its slot is kept until the answer is written */
  slotKept = false

  /** Records the reservation, which must be given back from here on. `since`: when it was requested. */
  hold({ facts: { reservation } }: Evidence<"Limiter">, since: number): void {
    this.reservation = reservation
    this.granted = reservation.held
    this.leasedAt = since
  }

  /** Records the present hold. */
  extend(held: number): void {
    if (this.reservation !== undefined) this.reservation = { ...this.reservation, held }
    this.granted = Math.max(this.granted ?? 0, held)
  }

  /** Records the call of the backend. From here on the request costs something. */
  send({ facts: { call, request } }: Permit, at: number, timing?: OutputTiming): void {
    this.promptEstimate = request.promptEstimate
    this.promptBytes = request.promptBytes
    this.maxTokens = call.plan.runs * call.maxTokens
    this.plan = call.plan
    this.timing = timing
    this.sentAt = at
    this.sent = true
  }

  settle(keepSlot: boolean): void {
    this.settled = true
    this.slotKept = keepSlot && this.reservation?.slot === true
  }

  /** Output tokens by the count of a final frame; undefined when the count is not believable. */
  claimedBy(final: Counted): number | undefined {
    return believedOutput(final, this.#seen)
  }

  /** Tokens so far, before the backend has counted them. */
  get running(): Usage {
    return this.#bounded({
      tokensIn: this.promptEstimate,
      tokensOut: this.output.estimate,
      source: this.output.tokens > 0 ? "counted" : "estimated"
    })
  }

  /**
   * The charge at the end. Requests that were refused or never sent cost nothing. The same holds for a backend that failed
   * before its first frame.
   */
  get usage(): Usage {
    if (!this.sent) return noUsage
    return this.final === undefined ? this.running : this.#bounded(usageOf(this.final, this.#seen))
  }

  /**
   * The charge when the client left at `nowMs`. `likely` is the number of tokens that the model generates in a given time.
   * Output that was held back is charged by time, at least what was seen and at most what was held.
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

  /** The time in which a backend may have generated unseen output. */
  #unseenMs(nowMs: number): number {
    if (this.timing?.hasOutput === true) return this.timing.silentMsAt(nowMs)
    // A model that streams has generated nothing before its first token: the request waits, or its prompt is read.
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

  /** Limits the output to what was held beside the prompt. */
  #bounded(usage: Usage): Usage {
    const prompt = Math.min(usage.tokensIn, this.promptEstimate)
    return this.granted === undefined ? usage : atMost(usage, this.granted - prompt)
  }
}
