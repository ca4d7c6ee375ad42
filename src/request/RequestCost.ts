/** The cost of one request: what its gates have decided, what it holds of the counters, what it has used, and what it is charged. */
import type { Evidence, Facts, Permit } from "../domain/Evidence.ts"
import type { OutputPlan } from "../domain/Inference.ts"
import { noOutput } from "../domain/outputPlan.ts"
import type { Reservation } from "../domain/Reservation.ts"
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

/** What bounds the charge of a call. */
export interface Sent {
  readonly promptEstimate: number
  /** bytes of the prompt, which bound the believable count of prompt tokens */
  readonly promptBytes: number
  /** output tokens that the backend may generate in all runs together */
  readonly maxOutput: number
  /** decided at admission: how much of the output is held, and in how many runs it is made */
  readonly plan: OutputPlan
  /**
   * measures whether the answer is streamed as it is generated; undefined when the request makes the backend collect
   * its output
   */
  readonly timing: OutputTiming | undefined
}

/** Before the first gate. */
const noFacts: Partial<Facts<"Audit">> = {}

const notSent: Sent = { promptEstimate: 0, promptBytes: 0, maxOutput: 0, plan: noOutput, timing: undefined }

export class RequestCost {
  /** when the request arrived, in monotonic ms */
  readonly arrivedMs: number
  /** what its gates have decided so far: the facts of the last link of its evidence */
  facts = noFacts
  /** set when every gate has admitted the request, and its intent row exists; shows whether the backend was called */
  permit: Permit | undefined
  /** the present hold; undefined before the Limiter has admitted it */
  reservation: Reservation | undefined
  /** the largest hold so far; undefined: nothing is held and nothing bounds the charge */
  granted: number | undefined
  /** when its lease began, in the time of `LeaseKeeper` */
  leasedAt = 0
  /** its call; `notSent` before it, and when the backend failed before its first frame */
  call = notSent
  /** the output, counted by its frames */
  readonly output = new OutputCount()
  /** the counts at the end of the answer */
  final: Counted | undefined
  /** nothing is held any more */
  settled = false
  /** ends the renewal of its lease; undefined before its call */
  #endLease: (() => void) | undefined

  constructor(arrivedMs = 0) {
    this.arrivedMs = arrivedMs
  }

  /** Records the reservation, which must be given back from here on. `since`: when it was requested. */
  hold({ facts }: Evidence<"Limiter">, since: number): void {
    const { reservation } = facts
    this.facts = facts
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
  send({ facts: { call, request } }: Permit, endLease: () => void, timing?: OutputTiming): void {
    this.#endLease = endLease
    const { promptBytes, promptEstimate } = request
    const { numPredict, plan } = call
    this.call = { promptEstimate, promptBytes, maxOutput: plan.runs * numPredict, plan, timing }
  }

  /** Records that the backend failed before its first frame: the request costs nothing. */
  refund(): void {
    this.call = notSent
  }

  /** Whether leaving costs something. */
  get sent(): boolean {
    return this.call !== notSent
  }

  /** Records that nothing is held any more. */
  settle(): void {
    this.settled = true
    this.#endLease?.()
  }

  /** Output tokens by the count of a final frame; undefined when the count is not believable. */
  claimedBy(final: Counted): number | undefined {
    return believedOutput(final, this.#seen)
  }

  /** Tokens so far, before the backend has counted them. */
  get running(): Usage {
    return this.#bounded({
      tokensIn: this.call.promptEstimate,
      tokensOut: this.output.estimate,
      source: this.output.tokens > 0 ? "counted" : "estimated"
    })
  }

  /**
   * The charge at the end. Requests that were refused or never sent cost nothing. The same holds for a backend that failed
   * before its first frame.
   */
  get usage(): Usage {
    if (this.call === notSent) return noUsage
    return this.final === undefined ? this.running : this.#bounded(usageOf(this.final, this.#seen))
  }

  /** The charge when the client left: all that is held, when nobody saw what the backend generated. */
  get usageWhenLeft(): Usage {
    if (this.call === notSent || this.final !== undefined || !this.#isUnseen) return this.usage
    const { tokensIn } = this.running
    return {
      ...this.#bounded({ tokensIn, tokensOut: this.call.maxOutput, source: "estimated" }),
      source: "estimated"
    }
  }

  /** With its first token, a model that was not known to stream has shown that it does. */
  get #isUnseen(): boolean {
    const { collects, unseen } = this.call.plan
    return collects || (unseen && this.output.tokens === 0)
  }

  get #seen(): Seen {
    const { maxOutput, plan, promptBytes, promptEstimate } = this.call
    return {
      frames: this.output.tokens,
      least: this.output.least,
      estimate: this.output.estimate,
      firstRun: plan.runs > 1 ? this.output.firstRun : 0,
      promptEstimate,
      promptBytes,
      maxOutput
    }
  }

  /** Limits the output to what was held beside the prompt. */
  #bounded(usage: Usage): Usage {
    const prompt = Math.min(usage.tokensIn, this.call.promptEstimate)
    return this.granted === undefined ? usage : atMost(usage, this.granted - prompt)
  }
}
