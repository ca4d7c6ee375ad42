/** The cost of one request: what its gates have decided, what it holds of the counters, what it has used, and what it is charged. */
import type { Evidence, Facts, Permit } from "../domain/Evidence.ts"
import type { OutputPlan } from "../domain/Inference.ts"
import { noOutput } from "../domain/outputPlan.ts"
import type { Outcome } from "../domain/Outcome.ts"
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
  /** from the arrival of the request to the first frame of its answer, in ms */
  readonly firstFrameMs?: number
  /** ends the renewal of its lease */
  readonly endLease: () => void
}

/** What is held of the counters. */
export interface Held {
  /** with the present hold */
  readonly reservation: Reservation
  /** the largest hold so far, which bounds the charge */
  readonly granted: number
  /** when its lease began, in the time of `LeaseKeeper` */
  readonly leasedAt: number
}

/** Before the first gate. */
const noFacts: Partial<Facts<"Audit">> = {}

const notSent: Sent = {
  promptEstimate: 0,
  promptBytes: 0,
  maxOutput: 0,
  plan: noOutput,
  timing: undefined,
  endLease: () => undefined
}

export class RequestCost {
  /** when the request arrived, in monotonic ms */
  readonly arrivedMs: number
  /** what its gates have decided so far: the facts of the last link of its evidence */
  facts = noFacts
  /** set when every gate has admitted the request, and its intent row exists; shows whether the backend was called */
  permit: Permit | undefined
  /** undefined before the Limiter has admitted it: nothing bounds the charge */
  held: Held | undefined
  /** its call; `notSent` before it, and when the backend failed before its first frame */
  call = notSent
  /** the output, counted by its frames */
  readonly output = new OutputCount()
  /** the counts at the end of the answer */
  final: Counted | undefined
  /** how it ended, and when, in monotonic ms; nothing is held any more */
  ended: { readonly outcome: Outcome; readonly at: number } | undefined

  constructor(arrivedMs = 0) {
    this.arrivedMs = arrivedMs
  }

  /** Records the reservation, which must be given back from here on. `since`: when it was requested. */
  hold({ facts }: Evidence<"Limiter">, since: number): void {
    const { reservation } = facts
    this.facts = facts
    this.held = { reservation, granted: reservation.held, leasedAt: since }
  }

  /** Records the present hold. */
  extend(held: number): void {
    if (this.held === undefined) return
    const { granted, leasedAt, reservation } = this.held
    this.held = { reservation: { ...reservation, held }, granted: Math.max(granted, held), leasedAt }
  }

  /** Records the call of the backend. From here on the request costs something. */
  send({ facts: { call, request } }: Permit, endLease: () => void, timing?: OutputTiming): void {
    const { promptBytes, promptEstimate } = request
    const { numPredict, plan } = call
    this.call = { promptEstimate, promptBytes, maxOutput: plan.runs * numPredict, plan, timing, endLease }
  }

  /** Records that the backend failed before its first frame: the request costs nothing. */
  refund(): void {
    this.call.endLease()
    this.call = notSent
  }

  /** Whether leaving costs something. */
  get sent(): boolean {
    return this.call !== notSent
  }

  /** Records the end: nothing is held any more. */
  end(outcome: Outcome, at: number): void {
    this.ended = { outcome, at }
    this.call.endLease()
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
    return this.held === undefined ? usage : atMost(usage, this.held.granted - prompt)
  }
}
