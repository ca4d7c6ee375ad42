/**
 * Refusals of unknown callers come at a bounded rate: beyond it each waits its turn, and with it the connection it came
 * on. A flood of bad keys or paths then slows itself down instead of everybody who pays, and its audit rows come no
 * faster than this. Below the rate nothing waits.
 *
 * *Details* Addresses take turns, so that a flood from one of them does not delay a refusal of another by more than one
 * turn. A client that leaves gives its place in the line back. Whoever has waited `mostMs` is answered without a turn,
 * and has no audit row of its own.
 */
import { Context, Deferred, Effect, Exit, Layer, Option } from "effect"
import { makeMonotonicMs } from "../../infra/time.ts"
import { addressGroup } from "./addressGroup.ts"

export interface TarpitOptions {
  /** refusals a second; default 200 */
  readonly perSecond?: number
  /** how many may come at once after a quiet second; default 100 */
  readonly burst?: number
  /** no refusal waits longer than this, in ms; default 3000 */
  readonly mostMs?: number
}

type Waiting = Deferred.Deferred<void>

export class Tarpit extends Context.Service<
  Tarpit,
  {
    /** Waits for the turn of one refusal to `address`. Answers whether it came: then the refusal has a row of its own. */
    turn(address: string): Effect.Effect<boolean>
    /** The same without waiting: whether a turn is free right now, and taken. */
    readonly turnNow: Effect.Effect<boolean>
  }
>()("tollgate/http/server/Tarpit") {
  static readonly layer = (options: TarpitOptions = {}): Layer.Layer<Tarpit> =>
    Layer.effect(
      Tarpit,
      Effect.gen(function* () {
        const nowMs = yield* makeMonotonicMs
        const scope = yield* Effect.scope
        const { burst = 100, mostMs = 3000, perSecond = 200 } = options
        /** who waits, by address; the address whose turn is next comes first */
        const lines = new Map<string, Set<Waiting>>()
        let turns = burst
        let countedAt = nowMs()
        let serving = false

        const takeTurn = (): boolean => {
          const now = nowMs()
          turns = Math.min(burst, turns + ((now - countedAt) * perSecond) / 1000)
          countedAt = now
          if (turns < 1) return false
          turns -= 1
          return true
        }

        const leave = (group: string, waiting: Waiting): void => {
          const line = lines.get(group)
          line?.delete(waiting)
          if (line?.size === 0) lines.delete(group)
        }

        /** The turn of whoever has waited longest at the next address. */
        const serveNext = (): void => {
          for (const [group, line] of lines) {
            for (const waiting of line) {
              leave(group, waiting)
              if (lines.delete(group)) lines.set(group, line)
              Deferred.doneUnsafe(waiting, Exit.void)
              return
            }
          }
        }

        const serve = Effect.gen(function* () {
          while (lines.size > 0) {
            if (takeTurn()) serveNext()
            else yield* Effect.sleep(Math.ceil(((1 - turns) * 1000) / perSecond))
          }
          serving = false
        }).pipe(
          // Whatever broke it, whoever waits next starts another.
          Effect.onError(() => Effect.sync(() => void (serving = false)))
        )

        const wait = Effect.fnUntraced(function* (group: string) {
          const waiting: Waiting = Deferred.makeUnsafe()
          const line = lines.get(group) ?? new Set()
          lines.set(group, line.add(waiting))
          if (!serving) {
            serving = true
            yield* Effect.forkIn(serve, scope)
          }
          const turn = yield* Deferred.await(waiting).pipe(
            Effect.timeoutOption(mostMs),
            Effect.interruptible,
            Effect.ensuring(Effect.sync(() => leave(group, waiting)))
          )
          return Option.isSome(turn)
        })

        return Tarpit.of({
          turn: (address) =>
            Effect.suspend(() =>
              lines.size === 0 && takeTurn() ? Effect.succeed(true) : wait(addressGroup(address))
            ),
          turnNow: Effect.sync(() => lines.size === 0 && takeTurn())
        })
      })
    )
}
