/**
 * The circuit breaker in front of the model server: one circuit for everybody, and one for each key that has failed.
 * `BREAKER_FAILURES` consecutive failures of one key open the circuit of that key. As many of two or more keys, or an outage
 * among them, open the circuit for everybody. An open circuit refuses requests for `BREAKER_OPEN_MS`, and then lets one
 * through as a probe (`Circuit.ts`).
 */
import { Cause, Context, Effect, Exit, Layer, Option } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { CircuitOpen } from "../domain/Errors.ts"
import { makeLruCache } from "../infra/LruCache.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { type Change, Circuit, type CircuitOptions, type Pass } from "./Circuit.ts"

/**
 * What an error says of the model server. `outage`: a failure that no request can cause. `failure`: this one may have. `own`:
 * this one is likely to have, so it counts for its key alone.
 */
export type Verdict = "outage" | "failure" | "own" | "ignored"

/** The caller of a call. */
export type Party = Pick<Caller, "keyId" | "keyPrefix">

/** The first part of a call has succeeded. */
export interface Guarded<A, E> {
  readonly value: A
  /** Reports how the rest of the call ended. A client that left is no result. Only the first report counts. */
  report(exit: Exit.Exit<unknown, E>): Effect.Effect<void>
}

/** Keys with a circuit of their own. Beyond this number the least recently used one starts anew. */
export const maxKeys = 1000

const make = Effect.fnUntraced(function* (options: CircuitOptions) {
  const nowMs = yield* makeMonotonicMs
  const common = new Circuit(options)
  const circuits = makeLruCache<Circuit>(maxKeys)

  const log = (key_prefix: string, ofAll: Change, ofKey: Change): Effect.Effect<void> =>
    ofAll === undefined && ofKey === undefined ? Effect.void : logChange(key_prefix, ofAll, ofKey)

  const logChange = Effect.fnUntraced(function* (key_prefix: string, ofAll: Change, ofKey: Change) {
    const { failures } = options
    if (ofAll === "opened") yield* Effect.logWarning("circuit breaker opened", { failures })
    if (ofAll === "closed") yield* Effect.logInfo("circuit breaker closed")
    if (ofKey === "opened") yield* Effect.logWarning("circuit of a key opened", { key_prefix, failures })
    if (ofKey === "closed") yield* Effect.logInfo("circuit of a key closed", { key_prefix })
  })

  /** Fails as `guard` would. Reserves nothing: `guard` decides again. */
  const check = (party: Party): Effect.Effect<void, CircuitOpen> =>
    Effect.suspend(() => {
      const waitMs = Math.max(common.waitMs(nowMs()), circuits.get(party.keyId)?.waitMs(nowMs()) ?? 0)
      return waitMs === 0 ? Effect.void : new CircuitOpen({ retryAfterS: Math.ceil(waitMs / 1000) })
    })

  /** Records how a call ended that both circuits had let pass. */
  const record = (party: Party, pass: Pass, own: Pass, end: Verdict | "success"): Effect.Effect<void> =>
    Effect.suspend(() => {
      const ofKey = end === "outage" ? "ignored" : end === "own" ? "failure" : end
      // A key that keeps failing says nothing about other keys.
      const ofAll =
        end === "outage" ? "failure" : end === "own" || (end === "failure" && own.probe) ? "ignored" : end
      const circuit = circuits.get(party.keyId) ?? (ofKey === "failure" ? new Circuit(options) : undefined)
      if (circuit !== undefined) circuits.set(party.keyId, circuit)
      const all = common.record(pass, ofAll, nowMs(), end === "outage" ? undefined : party.keyId)
      return log(party.keyPrefix, all, circuit?.record(own, ofKey, nowMs()))
    })

  const run = Effect.fnUntraced(function* <A, E, R>(
    party: Party,
    head: Effect.Effect<A, E, R>,
    verdictOf: (error: E) => Verdict
  ) {
    yield* check(party)
    const pass = common.admit(nowMs())
    const own = circuits.get(party.keyId)?.admit(nowMs()) ?? { generation: 0, probe: false }
    let reported = false
    const report = (exit: Exit.Exit<unknown, E>) =>
      Effect.suspend(() => {
        if (reported) return Effect.void
        reported = true
        return record(party, pass, own, resultOf(exit, verdictOf))
      })
    const value = yield* Effect.onError(head, (cause) => report(Exit.failCause(cause)))
    yield* log(party.keyPrefix, common.began(pass), circuits.get(party.keyId)?.began(own))
    return { value, report }
  })

  return {
    check,
    /**
     * Runs `head`, the part of a call up to its first frame, or fails with `CircuitOpen`. No interruption may come between
     * the admission and the call: a probe must always be given back.
     */
    guard: <A, E, R>(
      party: Party,
      head: Effect.Effect<A, E, R>,
      verdictOf: (error: E) => Verdict
    ): Effect.Effect<Guarded<A, E>, E | CircuitOpen, R> =>
      Effect.uninterruptibleMask((restore) => run(party, restore(head), verdictOf)),
    /** The state of the circuit for everybody. */
    state: Effect.sync(() => common.state(nowMs())),
    /** How many keys are refused by their own circuit. */
    openKeys: Effect.sync(
      () => [...circuits.entries()].filter(([, circuit]) => circuit.state(nowMs()) === "open").length
    )
  }
})

export class CircuitBreaker extends Context.Service<CircuitBreaker>()("tollgate/backend/CircuitBreaker", {
  make
}) {}

/** A client that left and a defect of the gateway say nothing of the model server. */
const resultOf = <E>(exit: Exit.Exit<unknown, E>, verdictOf: (error: E) => Verdict): Verdict | "success" => {
  if (Exit.isSuccess(exit)) return "success"
  const error = Cause.hasInterrupts(exit.cause) ? Option.none<E>() : Cause.findErrorOption(exit.cause)
  return Option.isSome(error) ? verdictOf(error.value) : "ignored"
}

export const layerCircuitBreaker = (options: CircuitOptions): Layer.Layer<CircuitBreaker> =>
  Layer.effect(CircuitBreaker, make(options))
