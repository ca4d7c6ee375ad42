/**
 * The circuit breaker in front of the model server: a circuit for each key, for each tenant, and for everybody (`Circuit.ts`).
 * `BREAKER_FAILURES` consecutive failures of one key open the circuit of that key. As many of two or more keys of a tenant open that of
 * the tenant when none of its keys was served within `BREAKER_OPEN_MS`, and as many of two or more tenants that for everybody when
 * nobody was. As many outages open it for everybody whoever is served.
 */
import { Cause, Context, Effect, Exit, Layer, Option } from "effect"
import { CircuitOpen } from "../domain/Errors.ts"
import { type LruCache, makeLruCache } from "../infra/LruCache.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import {
  type Change,
  Circuit,
  type CircuitOptions,
  hear,
  maxRemembered,
  type Party,
  type Pass,
  type Verdict
} from "./Circuit.ts"

export type { Party, Verdict } from "./Circuit.ts"

/** The first part of a call has succeeded. */
export interface Guarded<A, E> {
  readonly value: A
  /** Reports that a further frame has come. */
  readonly heard: Effect.Effect<void>
  /** Reports how the rest of the call ended. A client that left is no result. Only the first report counts. */
  report(exit: Exit.Exit<unknown, E>): Effect.Effect<void>
}

const make = Effect.fnUntraced(function* (options: CircuitOptions) {
  const { failures } = options
  const nowMs = yield* makeMonotonicMs
  const ofAll = new Circuit({ ...options, of: "all" })
  const [keys, tenants] = [makeLruCache<Circuit>(maxRemembered), makeLruCache<Circuit>(maxRemembered)]

  const at = (circuits: LruCache<Circuit>, of: "key" | "tenant", id: string): Circuit => {
    const known = circuits.get(id)
    if (known !== undefined) return known
    const circuit = new Circuit({ ...options, of })
    circuits.set(id, circuit)
    return circuit
  }
  const circuitsOf = (of: Party) => [at(keys, "key", of.keyId), at(tenants, "tenant", of.tenantId), ofAll]

  const log = Effect.fnUntraced(function* (party: Party, [ofKey, ofTenant, all]: ReadonlyArray<Change>) {
    const [key, tenant] = [{ key_prefix: party.keyPrefix }, { tenant: party.tenantName }]
    if (all === "opened") yield* Effect.logWarning("circuit breaker opened", { failures })
    if (ofTenant === "opened") yield* Effect.logWarning("circuit of a tenant opened", { ...tenant, failures })
    if (ofKey === "opened") yield* Effect.logWarning("circuit of a key opened", { ...key, failures })
    if (all === "closed") yield* Effect.logInfo("circuit breaker closed")
    if (ofTenant === "closed") yield* Effect.logInfo("circuit of a tenant closed", tenant)
    if (ofKey === "closed") yield* Effect.logInfo("circuit of a key closed", key)
  })

  const check = (circuits: ReadonlyArray<Circuit>, party: Party): Exit.Exit<void, CircuitOpen> => {
    const waitMs = Math.max(...circuits.map((circuit) => circuit.waitMs(nowMs(), party)))
    return waitMs === 0 ? Exit.void : Exit.fail(new CircuitOpen({ retryAfterS: Math.ceil(waitMs / 1000) }))
  }

  const told = (party: Party, changes: ReadonlyArray<Change>): Effect.Effect<void> =>
    changes.includes("opened") || changes.includes("closed") ? log(party, changes) : Effect.void

  const run = <A, E, R>(
    party: Party,
    head: Effect.Effect<A, E, R>,
    verdictOf: (error: E) => Verdict
  ): Effect.Effect<Guarded<A, E>, E | CircuitOpen, R> => {
    const circuits = circuitsOf(party)
    const checked = check(circuits, party)
    if (Exit.isFailure(checked)) return Exit.failCause(checked.cause)
    const passes: Array<Pass> = []
    for (const circuit of circuits) passes.push(circuit.admit(nowMs(), party, passes))
    let reported = false
    const report = (exit: Exit.Exit<unknown, E>) =>
      Effect.suspend(() => {
        if (reported) return Effect.void
        reported = true
        const end = resultOf(exit, verdictOf)
        return told(
          party,
          passes.map((pass) => pass.circuit.record(pass, end, nowMs()))
        )
      })
    const heard = Effect.suspend(() => told(party, hear(passes, nowMs())))
    return Effect.matchCauseEffect(head, {
      onFailure: (cause) => Effect.andThen(report(Exit.failCause(cause)), Effect.failCause(cause)),
      onSuccess: (value) => Effect.as(heard, { value, report, heard })
    })
  }

  return {
    /** Fails as `guard` would. Reserves nothing: `guard` decides again. */
    check: (party: Party) => check(circuitsOf(party), party),
    /**
     * Runs `head`, the part of a call up to its first frame, or fails with `CircuitOpen`. No interruption may come between
     * the admission and the call: a call that tries a circuit must always end.
     */
    guard: <A, E, R>(
      party: Party,
      head: Effect.Effect<A, E, R>,
      verdictOf: (error: E) => Verdict
    ): Effect.Effect<Guarded<A, E>, E | CircuitOpen, R> =>
      Effect.uninterruptibleMask((restore) => run(party, restore(head), verdictOf)),
    /** The state of the circuit for everybody. */
    state: Effect.sync(() => ofAll.state(nowMs())),
    /** How many keys and tenants are refused by their own circuit. */
    openKeys: Effect.sync(
      () =>
        [...keys.entries(), ...tenants.entries()].filter(([, one]) => one.state(nowMs()) === "open").length
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
