/** The shared circuit, as a worker reaches it: through the primary. */
import { Effect, Layer } from "effect"
import { CircuitAuthority, type CircuitView } from "../../backend/CircuitAuthority.ts"
import type { ChannelDown } from "../Channel.ts"
import { toPrimary, toWorker } from "../protocol.ts"
import { WorkerLink } from "./WorkerLink.ts"

/** While the primary does not answer, no call goes through, and the client may come back after a second. */
const refusedMs = 1000

export const layerCircuitAuthority: Layer.Layer<CircuitAuthority, never, WorkerLink> = Layer.effect(
  CircuitAuthority,
  Effect.gen(function* () {
    const { channel } = yield* WorkerLink
    let view: CircuitView = { closed: true, generation: 0, hasStreak: false }
    const update = (current: CircuitView) => Effect.sync(() => void (view = current))
    channel.answer(toWorker.circuit, update)
    // A worker that starts late finds the circuit as it is. Later changes are told.
    yield* Effect.ignore(Effect.flatMap(channel.ask(toPrimary.circuitView, undefined), update))
    const otherwise = <A, B>(question: Effect.Effect<A, ChannelDown>, value: B): Effect.Effect<A | B> =>
      Effect.catch(question, ({ reason }) =>
        Effect.as(Effect.logDebug("the primary does not answer", { reason }), value)
      )
    return CircuitAuthority.of({
      view: () => view,
      admit: (party) => otherwise(channel.ask(toPrimary.admit, partyOf(party)), refusedMs),
      waitMs: (party) => otherwise(channel.ask(toPrimary.waitMs, partyOf(party)), refusedMs),
      began: (party, pass) =>
        otherwise(channel.ask(toPrimary.began, { party: partyOf(party), pass }), {
          generation: pass.generation,
          probe: undefined
        }),
      report: (report) => Effect.sync(() => channel.tell(toPrimary.report, report)),
      seen: (seen) => Effect.sync(() => channel.tell(toPrimary.seen, seen)),
      state: otherwise(channel.ask(toPrimary.circuitState, undefined), "open" as const)
    })
  })
)

/** A caller has more than these two, which stay here. */
const partyOf = ({ keyId, tenantId }: { readonly keyId: string; readonly tenantId: string }) => ({
  keyId,
  tenantId
})
