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

/** A call that may be made. What is reported counts at once; what is returned only logs what that has changed. */
export interface Guarded<E> {
  /** Reports that frames have come. */
  heard(): Effect.Effect<void> | undefined
  /** Reports how the call ended. A client that left is no result. Only the first report counts. */
  ended(exit: Exit.Exit<unknown, E>): Effect.Effect<void> | undefined
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

  const check = (party: Party, circuits = circuitsOf(party)): Exit.Exit<void, CircuitOpen> => {
    const waitMs = Math.max(...circuits.map((circuit) => circuit.waitMs(nowMs(), party)))
    return waitMs === 0 ? Exit.void : Exit.fail(new CircuitOpen({ retryAfterS: Math.ceil(waitMs / 1000) }))
  }

  const told = (party: Party, changes: ReadonlyArray<Change>): Effect.Effect<void> | undefined =>
    changes.includes("opened") || changes.includes("closed") ? log(party, changes) : undefined

  return {
    /** Fails as `guard` would. Reserves nothing: `guard` decides again. */
    check,
    /** Lets a call pass. Its end must be reported, whatever happens to it, because it may try a circuit. */
    guard: <E>(party: Party, verdictOf: (error: E) => Verdict): Exit.Exit<Guarded<E>, CircuitOpen> => {
      const circuits = circuitsOf(party)
      const checked = check(party, circuits)
      if (Exit.isFailure(checked)) return Exit.failCause(checked.cause)
      const passes: Array<Pass> = []
      for (const circuit of circuits) passes.push(circuit.admit(nowMs(), party, passes))
      let isOver = false
      return Exit.succeed({
        heard: () => told(party, hear(passes, nowMs())),
        ended: (exit) => {
          if (isOver) return undefined
          isOver = true
          const end = resultOf(exit, verdictOf)
          return told(
            party,
            passes.map((pass) => pass.circuit.record(pass, end, nowMs()))
          )
        }
      })
    },
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
