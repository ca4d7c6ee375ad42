/**
 * The tokens a running request has in its hand. A stream that comes near the end of what it holds takes more; when
 * a limit or budget has nothing more to give, the hold says so and the stream is ended.
 */
import { Effect } from "effect"
import { totalTokens } from "../domain/Usage.ts"
import type { Meter } from "../gates/Meter/Meter.ts"
import type { Exchange } from "./Exchange.ts"

/** How far ahead of what was seen a stream holds, and how near it may come before it holds more. */
const ahead = 256
const margin = 64

export class Hold {
  readonly exchange: Exchange
  readonly #meter: Meter["Service"]
  held: number
  exhausted = false

  constructor(exchange: Exchange, meter: Meter["Service"]) {
    this.exchange = exchange
    this.#meter = meter
    this.held = exchange.reservation?.held ?? 0
  }

  get used(): number {
    return totalTokens(this.exchange.running)
  }

  /** Whether what is held is nearly used, and more could be. */
  get short(): boolean {
    return !this.exhausted && this.used + margin >= this.held && this.held < this.#most
  }

  get #most(): number {
    return this.exchange.promptEstimate + this.exchange.maxTokens
  }

  /** Holds more. A Meter that is down leaves the hold as it is. */
  get extend(): Effect.Effect<void> {
    return this.#renew(Math.min(this.#most, this.used + ahead))
  }

  /** The lease lives on, and so does what is held. A Meter that is down is asked again at the next beat. */
  get renew(): Effect.Effect<void> {
    return this.#renew(this.held)
  }

  /** The budget ran out, or the backend ignores the bound it was given; one that keeps it ends by itself. */
  get spent(): boolean {
    return (this.exhausted && this.used >= this.held) || this.exchange.frames > this.exchange.maxTokens
  }

  /** Output frames that are already more than what there was to spend. */
  get excess(): number {
    const { frames, maxTokens } = this.exchange
    return Math.max(0, frames - maxTokens, this.exhausted ? this.used - this.held : 0)
  }

  #renew(want: number): Effect.Effect<void> {
    const { exchange } = this
    const { reservation } = exchange
    if (reservation === undefined || exchange.concluded) return Effect.void
    return this.#meter.renew(reservation, this.used, want).pipe(
      Effect.map((renewal) => {
        this.held = renewal.held
        this.exhausted = renewal.exhausted
        exchange.reservation = { ...reservation, held: renewal.held }
      }),
      Effect.catch((error) => Effect.logDebug("a lease was not renewed", error.cause))
    )
  }
}
