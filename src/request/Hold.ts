/**
 * The tokens that a running request holds. A stream that comes near the end of its hold asks for more. When a limit
 * or budget has nothing more to give, the stream ends with `length`.
 *
 * The hold fails closed: when the Meter does not answer, the stream goes on to the end of the hold and then ends as
 * `Unavailable`. The stream asks near the end of its hold, and once more at its end, so that one lost reply does not end it.
 * Heartbeats ask in between.
 */
import { Effect } from "effect"
import { Unavailable } from "../domain/Errors.ts"
import type { Reservation } from "../domain/Reservation.ts"
import type { Meter, MeterDown, Renewal } from "../gates/meter/Meter.ts"
import type { RequestCost } from "./RequestCost.ts"

/** Tokens that a stream holds ahead of its output, and the rest at which it asks for more. */
const ahead = 256
const margin = 64

/** Loads the totals that the Meter has lost. */
export type Restore = (reservation: Reservation) => Effect.Effect<void, Unavailable>

export class Hold {
  readonly cost: RequestCost
  readonly #meter: Meter["Service"]
  readonly #restore: Restore
  held: number
  /** a limit or budget has nothing more to give */
  #exhausted = false
  /** why the Meter could not decide, until it does */
  #undecided: { readonly cause: unknown } | undefined

  constructor(cost: RequestCost, meter: Meter["Service"], restore: Restore) {
    this.cost = cost
    this.#meter = meter
    this.#restore = restore
    this.held = cost.held?.reservation.held ?? 0
  }

  /** Output tokens that may be sent with the present hold. */
  get output(): number {
    const { maxOutput, promptEstimate } = this.cost.call
    return Math.min(maxOutput, Math.max(0, this.held - promptEstimate))
  }

  /**
   * Whether `output` nearly uses up the hold and more may be available. After a failure, and for the last tokens of an answer:
   * whether it uses up all of it.
   */
  isShortOf(output: number, isFinal = false): boolean {
    const needed = isFinal || this.#undecided !== undefined ? output : output + margin
    return !this.#exhausted && this.held < this.#tokensFor(needed)
  }

  /**
   * Tries to hold more than `output` tokens, or just these when they are the last. A Meter that does not answer sets
   * `unavailable`.
   */
  extend(output: number, isFinal = false): Effect.Effect<void> {
    return Effect.suspend(() => {
      const want = this.#tokensFor(isFinal ? output : output + ahead)
      return Effect.flatMap(this.#request(want), () =>
        this.#undecided === missingTotals ? this.#requestRestored(want) : Effect.void
      )
    }).pipe(Effect.ignore)
  }

  /** The heartbeat: renews the lease and the hold. It also asks again for more when the Meter did not answer before. */
  readonly renew: Effect.Effect<void, MeterDown> = Effect.suspend(() => {
    const tokens = this.cost.output.estimate
    const short = this.#undecided !== undefined && this.held < this.#tokensFor(tokens + margin)
    return this.#request(short ? this.#tokensFor(tokens + ahead) : this.held)
  })

  /** Set when the answer must end at the end of its hold because the Meter did not answer. */
  get unavailable(): Unavailable | undefined {
    return this.#undecided === undefined || this.#exhausted
      ? undefined
      : new Unavailable({ gate: "Limiter", cause: this.#undecided.cause })
  }

  /** Tokens to hold for this output, at most the whole bound. */
  #tokensFor(output: number): number {
    const { maxOutput, promptEstimate } = this.cost.call
    return promptEstimate + Math.min(maxOutput, output)
  }

  /** Loads lost totals from the ledger, so that the Meter can decide. */
  #requestRestored(want: number): Effect.Effect<void, MeterDown | Unavailable> {
    const { held } = this.cost
    if (held === undefined) return Effect.void
    return this.#restore(held.reservation).pipe(
      Effect.tapError(({ cause }) => Effect.sync(() => void (this.#undecided = { cause }))),
      Effect.andThen(Effect.suspend(() => this.#request(want)))
    )
  }

  /** Remembers a failure: it becomes the error of the stream if the stream reaches the end of its hold. */
  #request(want: number): Effect.Effect<void, MeterDown> {
    return Effect.mapBoth(this.#renew(want), {
      onFailure: (down) => {
        this.#undecided = { cause: down.cause }
        return down
      },
      onSuccess: (renewed) => {
        if (renewed === undefined) return
        this.#exhausted = renewed.exhausted
        this.#undecided = renewed.exhausted || renewed.held >= want ? undefined : missingTotals
      }
    })
  }

  /** Undefined: nothing is held any more. */
  #renew(want: number): Effect.Effect<Renewal | undefined, MeterDown> {
    return Effect.suspend(() => {
      const { cost } = this
      const { held } = cost
      if (held === undefined || cost.ended !== undefined) return Effect.undefined
      return Effect.map(this.#meter.renew(held.reservation, this.#used, want), (renewal) => {
        this.held = renewal.held
        cost.extend(renewal.held)
        return renewal
      })
    })
  }

  /** Never more than is held. Output beyond it is not sent, and the Meter would have to charge it. */
  get #used(): number {
    return Math.min(this.held, this.cost.call.promptEstimate + this.cost.output.estimate)
  }
}

/** When a total is missing, nothing more is given, and what is spent is unknown. */
const missingTotals = { cause: "a total is missing" }
