/** The authority of a shared circuit in this process, and one breaker for each worker. */
import { Context, Effect, Layer } from "effect"
import { CircuitAuthority } from "../../src/backend/CircuitAuthority.ts"
import { CircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import type { CircuitOptions } from "../../src/backend/Circuit.ts"
import { type CircuitHost, makeCircuitHost } from "../../src/backend/CircuitHost.ts"
import { layerSharedBreaker } from "../../src/backend/sharedBreaker.ts"

export const authorityOf = (host: CircuitHost<string>, worker: string): CircuitAuthority["Service"] => ({
  view: host.view,
  admit: (party) => host.admit(worker, party),
  waitMs: (party) => Effect.sync(() => host.waitMs(party)),
  began: (party, pass) => host.began(pass, party),
  report: host.report,
  seen: (seen) => Effect.sync(() => host.seen(seen)),
  state: Effect.sync(host.state)
})

/** The breaker of one worker. */
export const breakerOf = (host: CircuitHost<string>, worker: string, options: CircuitOptions) =>
  Effect.map(
    Layer.build(
      Layer.fresh(layerSharedBreaker(options)).pipe(
        Layer.provide(Layer.succeed(CircuitAuthority, authorityOf(host, worker)))
      )
    ),
    (context) => Context.get(context, CircuitBreaker)
  )

/** A shared circuit with one worker. */
export const layerOneWorker = (options: CircuitOptions): Layer.Layer<CircuitBreaker> =>
  layerSharedBreaker(options).pipe(
    Layer.provide(
      Layer.effect(
        CircuitAuthority,
        Effect.map(
          makeCircuitHost<string>(options, () => Effect.void),
          (host) => authorityOf(host, "1")
        )
      )
    )
  )
