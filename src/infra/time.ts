/**
 * A timer for the hot path. A race against `Effect.sleep` costs two fibers and a dozen steps; where what is waited for is
 * a callback anyway, one timer that is called off does the same (`npm run bench`).
 */
import { Clock, Context, Effect } from "effect"

/** Calls `ring` after `ms`, unless what it answers is called first. */
export type Timer = (ms: number, ring: () => void) => () => void

const realClock = Context.get(Context.empty(), Clock.Clock)

const nothing = (): void => undefined

/**
 * Node runs the timers that are due before it reads what has come. A process that was kept from its work for longer than
 * `ms` would take everybody it waits for to be dead, though their answers lie there: so it looks once before it rings.
 */
const onRealClock: Timer = (ms, ring) => {
  if (ms === Number.POSITIVE_INFINITY) return nothing
  let look: NodeJS.Immediate | undefined
  const timer = setTimeout(() => void (look = setImmediate(ring)), ms)
  return () => {
    clearTimeout(timer)
    clearImmediate(look)
  }
}

/** On the clock of a context: Node's own timers, or a test's clock. */
export const timerOf = (context: Context.Context<never>): Timer => {
  if (Context.get(context, Clock.Clock) === realClock) return onRealClock
  const run = Effect.runForkWith(context)
  return (ms, ring) => {
    if (ms === Number.POSITIVE_INFINITY) return nothing
    const fiber = run(Effect.andThen(Effect.sleep(ms), Effect.sync(ring)))
    return () => fiber.interruptUnsafe()
  }
}

/** On the clock of the context it is made in. */
export const makeTimer: Effect.Effect<Timer> = Effect.map(Effect.context<never>(), timerOf)

/**
 * Waits for `register`'s callback, at most `ms`; then it is `late`. What `register` answers is called when nobody waits
 * any more, be it for the alarm or for an interruption.
 */
export const callbackWithTimeout = <A, E>(
  alarm: Timer,
  ms: number,
  register: (resume: (outcome: Effect.Effect<A, E>) => void) => () => void,
  late: () => Effect.Effect<A, E>
): Effect.Effect<A, E> =>
  Effect.callback((resume) => {
    let callOff = nothing
    let settled = false
    const settle = (outcome: Effect.Effect<A, E>) => {
      if (settled) return
      settled = true
      callOff()
      resume(outcome)
    }
    const forget = register(settle)
    // It may have been there already.
    if (settled) return undefined
    callOff = alarm(ms, () => {
      settle(late())
      forget()
    })
    return Effect.sync(() => {
      settled = true
      callOff()
      forget()
    })
  })
