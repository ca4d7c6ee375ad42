/**
 * The tokens that are held for a running request. A stream that comes near the end of what it holds asks for more; when
 * a limit or a budget has nothing more to give, it is ended with `length`.
 *
 * The hold fails closed. A Meter that does not answer gives nothing: the stream goes on to the end of what is held, and
 * is then ended as `Unavailable`. The stream itself asks twice at most: near the end of what it holds, and once more when
 * all of it is used up, so that one lost reply does not end a stream. Heartbeats ask in between.
 */
import { Effect } from "effect"
import { Unavailable } from "../domain/Errors.ts"
import type { Meter, MeterDown } from "../gates/meter/Meter.ts"
import type { RequestContext } from "./RequestContext.ts"

/** How far ahead of what was seen a stream holds, and how near it may come before it asks for more. */
const ahead = 256
const margin = 64

/** Loads the totals of a request that the Meter has lost. */
export type Restore = (context: RequestContext) => Effect.Effect<void, Unavailable>

export class Hold {
  readonly context: RequestContext
  readonly #meter: Meter["Service"]
  readonly #restore: Restore
  held: number
  /** a limit or budget has nothing more to give */
  #exhausted = false
  /** why the Meter could not decide, until it does */
  #undecided: { readonly cause: unknown } | undefined

  constructor(context: RequestContext, meter: Meter["Service"], restore: Restore) {
    this.context = context
    this.#meter = meter
    this.#restore = restore
    this.held = context.reservation?.held ?? 0
    context.granted = context.reservation?.held
  }

  /** Output tokens that may be shown with what is held now. */
  get output(): number {
    return Math.min(this.context.maxTokens, Math.max(0, this.held - this.context.promptEstimate))
  }

  /** Whether `output` tokens are nearly all that is held, and more could be had. After a failure: whether they are more. */
  isShortOf(output: number): boolean {
    return this.#lacks(this.#undecided === undefined ? output + margin : output)
  }

  /** As `isShortOf`, at the end: nothing will come after these. */
  isShortOfFinal(output: number): boolean {
    return this.#lacks(output)
  }

  /** Holds more than `output` tokens, as far as there is more. That the Meter does not answer shows in `unavailable`. */
  extend(output: number): Effect.Effect<void> {
    return this.#ask(output + ahead)
  }

  /** As `extend`, at the end: not more than these. */
  extendFinal(output: number): Effect.Effect<void> {
    return this.#ask(output)
  }

  /** The heartbeat: the lease lives on, and so does what is held. A Meter that did not answer is asked for more again. */
  renew(): Effect.Effect<void, MeterDown> {
    const tokens = this.context.output.estimate
    const short = this.#undecided !== undefined && this.held < this.#wanted(tokens + margin)
    return this.#request(short ? this.#wanted(tokens + ahead) : this.held)
  }

  /** Set when the end of what is held is the end of the answer because the Meter could not decide. */
  get unavailable(): Unavailable | undefined {
    return this.#undecided === undefined || this.#exhausted
      ? undefined
      : new Unavailable({ gate: "Limiter", cause: this.#undecided.cause })
  }

  #lacks(output: number): boolean {
    return !this.#exhausted && this.held < this.#wanted(output)
  }

  /** Tokens to hold for so much output; never more than the whole bound. */
  #wanted(output: number): number {
    const { maxTokens, promptEstimate } = this.context
    return promptEstimate + Math.min(maxTokens, output)
  }

  #ask(output: number): Effect.Effect<void> {
    const want = this.#wanted(output)
    const asked = Effect.flatMap(this.#request(want), () =>
      this.#undecided === missingTotals ? this.#restored(want) : Effect.void
    )
    return Effect.ignore(asked)
  }

  /** Totals were lost: they come back from the ledger, and then the Meter can decide. */
  #restored(want: number): Effect.Effect<void, MeterDown | Unavailable> {
    const loaded = Effect.tapError(this.#restore(this.context), ({ cause }) =>
      Effect.sync(() => void (this.#undecided = { cause }))
    )
    return Effect.andThen(
      loaded,
      Effect.suspend(() => this.#request(want))
    )
  }

  /** A failure is remembered: it is why the stream ends, if it comes to the end of its hold. */
  #request(want: number): Effect.Effect<void, MeterDown> {
    const { context } = this
    const { reservation } = context
    if (reservation === undefined || context.finished) return Effect.void
    return Effect.mapBoth(this.#meter.renew(reservation, this.#used, want), {
      onFailure: (down) => {
        this.#undecided = { cause: down.cause }
        return down
      },
      onSuccess: ({ exhausted, held }) => {
        this.held = held
        this.#exhausted = exhausted
        this.#undecided = exhausted || held >= want ? undefined : missingTotals
        context.reservation = { ...reservation, held }
        context.granted = Math.max(context.granted ?? 0, held)
      }
    })
  }

  /** Never more than is held: what is beyond it is not shown, and the Meter would have to charge it whatever remains. */
  get #used(): number {
    return Math.min(this.held, this.context.promptEstimate + this.context.output.estimate)
  }
}

/** Nothing more is given on a total that is missing, and nothing is known to be spent. */
const missingTotals = { cause: "a total is missing" }
