/**
 * The tokens a running request has in its hand. A stream that comes near the end of what it holds takes more; when
 * a limit or budget has nothing more to give, the hold says so and the stream is ended.
 */
import { Effect, Schedule, type Scope } from "effect"
import { Audit } from "../audit/Audit.ts"
import { totalTokens } from "../domain/Usage.ts"
import { Meter } from "../gates/Meter/Meter.ts"
import type { Exchange } from "./Exchange.ts"

/** How far ahead of what was seen a stream holds, and how near it may come before it holds more. */
const ahead = 256
const margin = 64

export class Hold {
  readonly exchange: Exchange
  held: number
  exhausted = false

  constructor(exchange: Exchange) {
    this.exchange = exchange
    this.held = exchange.reservation?.held ?? 0
  }

  get used(): number {
    return totalTokens(this.exchange.running)
  }

  /** Holds more if what is held is nearly used. A Meter that is down leaves the hold as it is. */
  get extend(): Effect.Effect<void, never, Meter> {
    const { exchange } = this
    const most = exchange.promptEstimate + exchange.maxTokens
    if (this.exhausted || this.held >= most || this.used + margin < this.held) return Effect.void
    return renew(exchange, this, Math.min(most, this.used + ahead))
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

  /**
   * Renews lease and hold three times in the life of a lease, for as long as the request Scope is open, and notes
   * for the ledger what has been used: that is what the request is charged if this process dies.
   */
  heartbeat(leaseS: number): Effect.Effect<void, never, Meter | Audit | Scope.Scope> {
    const beat = Effect.gen({ self: this }, function* () {
      const audit = yield* Audit
      yield* audit.progress(this.exchange.arrival.requestId, this.exchange.running, this.held)
      yield* renew(this.exchange, this, this.held)
    })
    return beat.pipe(
      Effect.schedule(Schedule.spaced(`${Math.ceil((leaseS * 1000) / 3)} millis`)),
      Effect.forkScoped,
      Effect.asVoid
    )
  }
}

const renew = Effect.fnUntraced(function* (exchange: Exchange, hold: Hold, want: number) {
  const reservation = exchange.reservation
  if (reservation === undefined || exchange.concluded) return
  const meter = yield* Meter
  yield* meter.renew(reservation, hold.used, want).pipe(
    Effect.tap((renewal) =>
      Effect.sync(() => {
        hold.held = renewal.held
        hold.exhausted = renewal.exhausted
        exchange.reservation = { ...reservation, held: renewal.held }
      })
    ),
    Effect.catch((error) => Effect.logDebug("a lease was not renewed", error.cause))
  )
})
