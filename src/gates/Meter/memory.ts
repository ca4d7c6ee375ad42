/**
 * The Meter in this process, on Effect's Clock: for a single gateway without Redis, and for tests.
 */
import { Clock, Effect, Layer } from "effect"
import { Counters, type Options } from "./Counters.ts"
import { Meter, MeterDown } from "./Meter.ts"

/** A Meter on counters of one's own; tests keep them to look inside and to make them forget. */
export const layerCounters = (counters: Counters): Layer.Layer<Meter> =>
  Layer.effect(
    Meter,
    Effect.map(Clock.Clock, (clock) => {
      const now = <A>(verb: (now: number) => A): Effect.Effect<A> =>
        Effect.sync(() => verb(clock.currentTimeMillisUnsafe()))
      return Meter.of({
        reserve: (claims, ask) =>
          now((at) => counters.reserve(claims, ask, at)).pipe(
            Effect.filterOrFail(
              (verdict) => verdict !== undefined,
              () => new MeterDown({ cause: `request ${ask.id} is over` })
            )
          ),
        renew: (reservation, used, want) => now((at) => counters.renew(reservation, used, want, at)),
        settle: (reservation, used) => now((at) => counters.settle(reservation, used, at)),
        cancel: ({ id, claims }) => now((at) => counters.cancel(claims, id, at)),
        peek: (claims) => now((at) => counters.peek(claims, at)),
        load: (account, totals) => now((at) => counters.load(account, totals, at)),
        survey: (account, instant) => now((at) => counters.survey(account, instant, at)),
        repair: (account, instant, mark, totals) =>
          now((at) => counters.repair(account, instant, mark, totals, at)),
        remembers: Effect.succeed(true),
        ping: Effect.void
      })
    })
  )

export const layerMemory = (options: Options): Layer.Layer<Meter> =>
  Layer.suspend(() => layerCounters(new Counters(options)))
