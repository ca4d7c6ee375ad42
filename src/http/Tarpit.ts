/**
 * Refusals of unknown callers come at a bounded rate: beyond it each waits its turn, and with it the connection it came
 * on. A flood of bad keys or paths then slows itself down instead of everybody who pays, and its audit rows come no
 * faster than this. Below the rate nothing waits.
 */
import { Context, Effect, Layer } from "effect"
import { makeMonotonicMs } from "../infra/monotonic.ts"

export interface TarpitOptions {
  /** refusals a second; default 200 */
  readonly perSecond?: number
  /** how many may come at once after a quiet second; default 100 */
  readonly burst?: number
  /** no refusal waits longer than this and a turn more, in ms; default 3000 */
  readonly mostMs?: number
}

export class Tarpit extends Context.Service<
  Tarpit,
  {
    /** Waits for the turn of one refusal; may be interrupted, which gives nothing back. */
    readonly turn: Effect.Effect<void>
  }
>()("tollgate/http/Tarpit") {
  static readonly layer = (options: TarpitOptions = {}): Layer.Layer<Tarpit> =>
    Layer.effect(
      Tarpit,
      Effect.gen(function* () {
        const nowMs = yield* makeMonotonicMs
        const { burst = 100, mostMs = 3000, perSecond = 200 } = options
        /** when the next turn would be if nothing might come at once */
        let nextAt = 0
        return Tarpit.of({
          turn: Effect.suspend(() => {
            const now = nowMs()
            const due = Math.max(nextAt, now)
            const waitMs = due - now - (burst * 1000) / perSecond
            if (waitMs <= 0) {
              nextAt = due + 1000 / perSecond
              return Effect.void
            }
            // Whoever has to wait longest is not counted: the line is as long as it gets.
            if (waitMs < mostMs) nextAt = due + 1000 / perSecond
            return Effect.interruptible(Effect.sleep(waitMs))
          })
        })
      })
    )
}
