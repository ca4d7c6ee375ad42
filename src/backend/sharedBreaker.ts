/**
 * The circuit breaker of a worker. While the circuit is closed it asks nobody: it reports failures at once, a success only
 * when it ends a streak, and a few times a second who was served. While the circuit is not closed it asks the authority
 * about each call.
 */
import { Effect, Exit, Layer } from "effect"
import type { CircuitOpen } from "../domain/Errors.ts"
import { makeMonotonicMs, makeTimer } from "../infra/time.ts"
import { circuitOpen, resultOf } from "./breaker.ts"
import type { CallResult, CircuitOptions, Party } from "./Circuit.ts"
import { CircuitAuthority, type Pass, type Sighting } from "./CircuitAuthority.ts"
import { CircuitBreaker, type Guarded } from "./CircuitBreaker.ts"

interface Noted {
  readonly party: Party
  readonly at: number
}

/** The last caller, the last one with another key, and the last one with another tenant: `Circuit` needs no more. */
class LastSeen {
  #last: Noted | undefined
  #otherKey: Noted | undefined
  #otherTenant: Noted | undefined
  #changed = false
  readonly #nowMs: () => number
  readonly #first: () => void

  /** `first` is called at the first caller after each `take`. */
  constructor(nowMs: () => number, first: () => void) {
    this.#nowMs = nowMs
    this.#first = first
  }

  note({ keyId, tenantId }: Party): void {
    const last = this.#last
    if (last !== undefined && last.party.keyId !== keyId) this.#otherKey = last
    if (last !== undefined && last.party.tenantId !== tenantId) this.#otherTenant = last
    this.#last = { party: { keyId, tenantId }, at: this.#nowMs() }
    if (this.#changed) return
    this.#changed = true
    this.#first()
  }

  /** The callers since the last call. */
  take(): ReadonlyArray<Sighting> {
    if (!this.#changed) return []
    const seen = [this.#otherTenant, this.#otherKey, this.#last].filter((noted) => noted !== undefined)
    this.#last = this.#otherKey = this.#otherTenant = undefined
    this.#changed = false
    const now = this.#nowMs()
    return seen.map(({ at, party }) => ({ party, agoMs: now - at }))
  }
}

/** How soon the authority learns who was served: exact enough for `openMs`. */
const seenWithinMs = (openMs: number): number => Math.min(250, openMs / 4)

const make = Effect.fnUntraced(function* ({ openMs }: Pick<CircuitOptions, "openMs">) {
  const [authority, nowMs, timer] = [yield* CircuitAuthority, yield* makeMonotonicMs, yield* makeTimer]
  const run = Effect.runForkWith(yield* Effect.context<never>())
  let isDue = false

  const tellSeen = Effect.suspend(() => {
    const seen = { served: served.take(), asked: asked.take() }
    return seen.served.length + seen.asked.length === 0 ? Effect.void : authority.seen(seen)
  })
  const tellSoon = () => {
    if (isDue) return
    isDue = true
    timer(seenWithinMs(openMs), () => {
      isDue = false
      run(tellSeen)
    })
  }
  const [served, asked] = [new LastSeen(nowMs, tellSoon), new LastSeen(nowMs, tellSoon)]

  /** The authority decides by who was served, so it learns that first. */
  const upToDate = <A>(question: Effect.Effect<A>): Effect.Effect<A> => Effect.andThen(tellSeen, question)

  const report = (party: Party, pass: Pass, outcome: CallResult): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (outcome === "success") served.note(party)
      // Of a call of a closed circuit only what changes the state is told.
      const matters = outcome === "failure" || (outcome === "success" && authority.view().hasStreak)
      if (pass.probe === undefined && !matters) return Effect.void
      return upToDate(
        authority.report({ party: { keyId: party.keyId, tenantId: party.tenantId }, pass, outcome })
      )
    })

  const guarded = <A>(party: Party, pass: Pass, value: A): Guarded<A> => ({
    value,
    report: (outcome) => report(party, pass, outcome)
  })

  const call = <A, E, R>(
    party: Party,
    pass: Pass,
    head: Effect.Effect<A, E, R>,
    isFailure: (error: E) => boolean
  ): Effect.Effect<Guarded<A>, E, R> => {
    const judged = Effect.onExitPrimitive(head, (exit) =>
      Exit.isSuccess(exit) ? undefined : report(party, pass, resultOf(exit.cause, isFailure))
    )
    if (pass.probe === undefined) {
      return Effect.map(judged, (value) => {
        served.note(party)
        return guarded(party, pass, value)
      })
    }
    return Effect.flatMap(judged, (value) =>
      Effect.map(upToDate(authority.began(party, pass)), (rest) => guarded(party, rest, value))
    )
  }

  const guard = <A, E, R>(
    party: Party,
    head: Effect.Effect<A, E, R>,
    isFailure: (error: E) => boolean
  ): Effect.Effect<Guarded<A>, E | CircuitOpen, R> =>
    Effect.suspend((): Effect.Effect<Guarded<A>, E | CircuitOpen, R> => {
      asked.note(party)
      const { closed, generation } = authority.view()
      if (closed) return call(party, { generation, probe: undefined }, head, isFailure)
      // No interruption may come between taking the probe and the call, so that the probe is always given back.
      return Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(
          upToDate(authority.admit(party)),
          (pass): Effect.Effect<Guarded<A>, E | CircuitOpen, R> =>
            typeof pass === "number"
              ? Effect.fail(circuitOpen(pass))
              : call(party, pass, restore(head), isFailure)
        )
      )
    })

  return CircuitBreaker.of({
    guard,
    check: (party) =>
      Effect.suspend(() => {
        asked.note(party)
        if (authority.view().closed) return Effect.void
        return Effect.flatMap(upToDate(authority.waitMs(party)), (waitMs) =>
          waitMs > 0 ? Effect.fail(circuitOpen(waitMs)) : Effect.void
        )
      }),
    isClosed: () => authority.view().closed,
    state: Effect.suspend(() =>
      authority.view().closed ? Effect.succeed("closed" as const) : authority.state
    )
  })
})

export const layerSharedBreaker = (
  options: Pick<CircuitOptions, "openMs">
): Layer.Layer<CircuitBreaker, never, CircuitAuthority> => Layer.effect(CircuitBreaker, make(options))
