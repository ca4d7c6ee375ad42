/** The circuit that several workers share: `CircuitAuthority` in the process that has the state machine. */
import { Effect } from "effect"
import { makeMonotonicMs } from "../infra/time.ts"
import {
  type Admission,
  type BreakerState,
  Circuit,
  type CircuitOptions,
  type Party,
  Refusal
} from "./Circuit.ts"
import type { CircuitView, Pass, Report, Seen } from "./CircuitAuthority.ts"

/** `W` names a worker. */
export interface CircuitHost<W> {
  readonly view: () => CircuitView
  admit(worker: W, party: Party): Effect.Effect<Pass | number>
  waitMs(party: Party): number
  began(pass: Pass, party: Party): Effect.Effect<Pass>
  report(report: Report): Effect.Effect<void>
  seen(seen: Seen): void
  state(): BreakerState
  /** Gives back the probes of a worker that is gone. */
  forget(worker: W): Effect.Effect<void>
}

/** `changed` is called after each change of the view. */
export const makeCircuitHost = Effect.fnUntraced(function* <W>(
  options: CircuitOptions,
  changed: (view: CircuitView) => Effect.Effect<void>
) {
  const nowMs = yield* makeMonotonicMs
  const circuit = new Circuit(options)
  const probes = new Map<number, { readonly worker: W; readonly admission: Admission }>()
  let lastProbe = 0

  const view = (): CircuitView => ({
    closed: circuit.isClosed,
    generation: circuit.generation,
    hasStreak: circuit.hasStreak
  })

  /** Applies a transition, tells the workers when it changed what they know, and logs when it opened or closed the circuit. */
  const apply = <A>(transition: () => A): Effect.Effect<A> =>
    Effect.suspend(() => {
      const before = view()
      const result = transition()
      const after = view()
      const told =
        before.generation === after.generation && before.hasStreak === after.hasStreak
          ? Effect.void
          : changed(after)
      const logged =
        before.closed === after.closed
          ? Effect.void
          : after.closed
            ? Effect.logInfo("circuit breaker closed")
            : Effect.logWarning("circuit breaker opened", { failures: options.failures })
      return Effect.as(Effect.andThen(told, logged), result)
    })

  const admissionOf = (pass: Pass, party: Party): Admission =>
    (pass.probe === undefined ? undefined : probes.get(pass.probe)?.admission) ?? {
      generation: pass.generation,
      party,
      probe: false
    }

  return {
    view,
    admit: (worker, party) =>
      Effect.sync(() => {
        const admission = circuit.admit(party, nowMs())
        if (admission instanceof Refusal) return admission.waitMs
        if (!admission.probe) return { generation: admission.generation, probe: undefined }
        lastProbe += 1
        probes.set(lastProbe, { worker, admission })
        return { generation: admission.generation, probe: lastProbe }
      }),
    waitMs: (party) => circuit.waitMs(party, nowMs()),
    began: (pass, party) =>
      apply(() => {
        const { generation } = circuit.began(admissionOf(pass, party), nowMs())
        if (pass.probe !== undefined) probes.delete(pass.probe)
        return { generation, probe: undefined }
      }),
    report: ({ outcome, party, pass }) =>
      apply(() => {
        circuit.record(admissionOf(pass, party), outcome, nowMs())
        if (pass.probe !== undefined) probes.delete(pass.probe)
      }),
    seen: ({ asked, served }) => {
      const now = nowMs()
      for (const { agoMs, party } of served) circuit.noteServed(party, now - agoMs)
      for (const { agoMs, party } of asked) circuit.noteAsked(party, now - agoMs)
    },
    state: () => circuit.state(nowMs()),
    forget: (worker) =>
      apply(() => {
        for (const [probe, { admission, worker: owner }] of probes) {
          if (owner !== worker) continue
          circuit.record(admission, "ignored", nowMs())
          probes.delete(probe)
        }
      })
  } satisfies CircuitHost<W>
})
