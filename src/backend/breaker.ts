/** The circuit breaker of this process: one circuit for everybody, and one for each key that has failed. */
import { Cause, Effect, Exit, Layer, Option } from "effect"
import { CircuitOpen } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { type Change, Circuit, type CircuitOptions, type Pass } from "./Circuit.ts"
import { CircuitBreaker, type Party, type Verdict } from "./CircuitBreaker.ts"

/** Keys with a circuit of their own. Beyond this number the least recently used one starts anew. */
export const maxKeys = 1000

const make = Effect.fnUntraced(function* (options: CircuitOptions) {
  const nowMs = yield* makeMonotonicMs
  const common = new Circuit(options)
  const circuits = new Map<string, Circuit>()

  /** The circuit of a key, or `otherwise`. It becomes the most recently used one. */
  const circuitOf = ({ keyId }: Party, otherwise?: Circuit): Circuit | undefined => {
    const circuit = circuits.get(keyId) ?? otherwise
    if (circuit === undefined) return undefined
    circuits.delete(keyId)
    circuits.set(keyId, circuit)
    const [oldest] = circuits.keys()
    if (circuits.size > maxKeys && oldest !== undefined) circuits.delete(oldest)
    return circuit
  }

  const log = Effect.fnUntraced(function* (key_prefix: string, ofAll: Change, ofKey: Change) {
    const { failures } = options
    if (ofAll === "opened") yield* Effect.logWarning("circuit breaker opened", { failures })
    if (ofAll === "closed") yield* Effect.logInfo("circuit breaker closed")
    if (ofKey === "opened") yield* Effect.logWarning("circuit of a key opened", { key_prefix, failures })
    if (ofKey === "closed") yield* Effect.logInfo("circuit of a key closed", { key_prefix })
  })

  const check = (party: Party): Effect.Effect<void, CircuitOpen> =>
    Effect.suspend(() => {
      const waitMs = Math.max(common.waitMs(nowMs()), circuitOf(party)?.waitMs(nowMs()) ?? 0)
      return waitMs === 0 ? Effect.void : new CircuitOpen({ retryAfterS: Math.ceil(waitMs / 1000) })
    })

  /** Records how a call ended that both circuits had let pass. */
  const record = (party: Party, pass: Pass, own: Pass, end: Verdict | "success"): Effect.Effect<void> =>
    Effect.suspend(() => {
      const ofKey = end === "outage" ? "ignored" : end === "own" ? "failure" : end
      // That a key goes on failing says nothing about the others.
      const ofAll =
        end === "outage" ? "failure" : end === "own" || (end === "failure" && own.probe) ? "ignored" : end
      const circuit = circuitOf(party, ofKey === "failure" ? new Circuit(options) : undefined)
      const all = common.record(pass, ofAll, nowMs(), end === "outage" ? undefined : party.keyId)
      return log(party.keyPrefix, all, circuit?.record(own, ofKey, nowMs()))
    })

  return CircuitBreaker.of({
    check,
    // No interruption may come between the admission and the call: a probe must always be given back.
    guard: <A, E, R>(party: Party, head: Effect.Effect<A, E, R>, verdictOf: (error: E) => Verdict) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          yield* check(party)
          const pass = common.admit(nowMs())
          const own = circuitOf(party)?.admit(nowMs()) ?? { generation: 0, probe: false }
          const report = (exit: Exit.Exit<unknown, E>) => record(party, pass, own, resultOf(exit, verdictOf))
          const value = yield* Effect.onError(restore(head), (cause) => report(Exit.failCause(cause)))
          yield* log(party.keyPrefix, common.began(pass), circuitOf(party)?.began(own))
          return { value, report }
        })
      ),
    state: Effect.sync(() => common.state(nowMs())),
    openKeys: Effect.sync(
      () => [...circuits.values()].filter((circuit) => circuit.state(nowMs()) === "open").length
    )
  })
})

/** A client that left and a defect of the gateway say nothing of the model server. */
const resultOf = <E>(exit: Exit.Exit<unknown, E>, verdictOf: (error: E) => Verdict): Verdict | "success" => {
  if (Exit.isSuccess(exit)) return "success"
  const error = Cause.hasInterrupts(exit.cause) ? Option.none<E>() : Cause.findErrorOption(exit.cause)
  return Option.isSome(error) ? verdictOf(error.value) : "ignored"
}

export const layerCircuitBreaker = (options: CircuitOptions): Layer.Layer<CircuitBreaker> =>
  Layer.effect(CircuitBreaker, make(options))
