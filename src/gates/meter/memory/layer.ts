/**
 * The Meter in this process, for a single gateway without Redis, and for tests. Windows and leases use the monotonic
 * clock, so that a change of the wall clock frees no slot. The wall clock only decides the day.
 */
import { Clock, Effect, Layer } from "effect"
import { TimeZone } from "../../../domain/Calendar.ts"
import { makeMonotonicMs } from "../../../infra/time.ts"
import type { MeterOptions } from "../bounds.ts"
import { Meter, MeterDown } from "../Meter.ts"
import { MemoryMeter } from "./MemoryMeter.ts"

/** The operations on `counters`, at the time of `nowMs`. */
export const makeMemory = (counters: MemoryMeter, nowMs: () => number): Meter["Service"] => {
  const now = <A>(verb: (now: number) => A): Effect.Effect<A> => Effect.sync(() => verb(nowMs()))
  return Meter.of({
    reserve: (claims, ask) =>
      Effect.suspend(() => {
        const verdict = counters.reserve(claims, ask, nowMs())
        return verdict === undefined
          ? new MeterDown({ cause: `request ${ask.id} is over` })
          : Effect.succeed(verdict)
      }),
    renew: (reservation, used, want) => now((at) => counters.renew(reservation, used, want, at)),
    settle: (reservation, used) => now((at) => counters.settle(reservation, used, at)),
    cancel: ({ id, claims }) => now((at) => counters.cancel(claims, id, at)),
    peek: (claims) => now((at) => counters.peek(claims, at)),
    load: (owner, loaded) => now((at) => counters.load(owner, loaded, at)),
    snapshot: (of, instant) => now((at) => counters.survey(of, instant, at)),
    repair: (of, instant, mark, totals) => now((at) => counters.repair(of, instant, mark, totals, at)),
    hasState: Effect.succeed(true),
    ping: Effect.void
  })
}

export const layerMemory = (options: MeterOptions): Layer.Layer<Meter> =>
  Layer.effect(
    Meter,
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const nowMs = yield* makeMonotonicMs
      return makeMemory(
        new MemoryMeter(options, () => clock.currentTimeMillisUnsafe(), yield* TimeZone),
        nowMs
      )
    })
  )
