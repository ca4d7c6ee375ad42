/**
 * What one request costs: what it holds of the counters, what it has used, and what it is charged in the end.
 *
 * Others read it. They change it by its verbs only, because its type is read-only outside.
 */
import type { Evidence, Permit } from "../domain/Evidence.ts"
import { noOutput, type OutputPlan } from "../domain/outputPlan.ts"
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
import type { Handle } from "../infra/v8/DenseList.ts"
import { OutputCount } from "./OutputCount.ts"
import type { Speech } from "./Speech.ts"

class Cost {
  /** what it holds now; undefined before the Limiter has let it through */
  reservation: Reservation | undefined
  /** the most tokens that were ever held for it; undefined: nothing is held and nothing bounds the charge */
  granted: number | undefined
  /** when its lease began, in the time of `LeaseKeeper` */
  leasedAt = 0
  /** among the leases that are kept alive */
  lease: Handle | undefined
  /** its place at the backend */
  place: Place | undefined
  /** set when every gate has let the request through; says whether the backend was called */
  permit: Permit | undefined
  /** the backend has been called: from here on leaving is not free */
  sent = false
  /** monotonic ms of the call to the backend */
  sentAt = 0
  promptEstimate = 0
  /** bytes of the prompt: no count of prompt tokens can honestly be far above it */
  promptBytes = 0
  /** output tokens the backend was allowed, in all its runs together */
  maxTokens = 0
  /** decided at admission: how much of the output is held, and in how many runs it is made */
  plan: OutputPlan = noOutput
  /** how its answer is spoken; undefined when the request itself makes the backend collect its output */
  speech: Speech | undefined
  /** output tokens, as far as frames tell */
  readonly output = new OutputCount()
  /** what the end of the answer says of its cost */
  final: Counted | undefined
  /** nothing more is held or used */
  settled = false
  /** settled, but its slot stays taken until its answer is written */
  slotKept = false

  /** From here on there is something to give back. `since`: when it was asked for. */
  hold({ known: { reservation } }: Evidence<"Limiter">, since: number): void {
    this.reservation = reservation
    this.granted = reservation.held
    this.leasedAt = since
  }

  /** So many tokens are held now. */
  extend(held: number): void {
    if (this.reservation !== undefined) this.reservation = { ...this.reservation, held }
    this.granted = Math.max(this.granted ?? 0, held)
  }

  keep(lease: Handle): void {
    this.lease = lease
  }

  renewLease(since: number): void {
    this.leasedAt = since
  }

  take(place: Place): void {
    this.place = place
  }

  admit(permit: Permit): void {
    this.permit = permit
  }

  /** The backend is called: from here on it costs something. */
  send({ known: { call, request } }: Permit, at: number, speech?: Speech): void {
    this.promptEstimate = request.promptEstimate
    this.promptBytes = request.promptBytes
    this.maxTokens = call.plan.runs * call.maxTokens
    this.plan = call.plan
    this.speech = speech
    this.sentAt = at
    this.sent = true
  }

  /** The backend gave nothing, or was given no time to: it is charged nothing. */
  unsend(): void {
    this.sent = false
  }

  /** What the end of the answer says of its cost. */
  count(final: Counted | undefined): void {
    this.final = final
  }

  settle(keepSlot: boolean): void {
    this.settled = true
    this.slotKept = keepSlot && this.reservation?.slot === true
  }

  /** Its answer is written. */
  freeSlot(): void {
    this.slotKept = false
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

export type RequestCost = Readonly<Cost>

export const makeRequestCost = (): RequestCost => new Cost()
