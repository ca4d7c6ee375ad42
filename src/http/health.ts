/** Health and metrics: no key, no audit row, no limits. */
import { Context, Duration, Effect, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import type { Metrics } from "../observability/Metrics.ts"
import { Backend } from "../backend/Backend.ts"
import { ShuttingDown, Unavailable } from "../domain/Errors.ts"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { measured, timeoutDetached, unmeasured } from "../infra/time.ts"
import { Drain } from "../infra/Drain.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { headersOf, respondJson } from "./respond.ts"

const probeTimeout = Duration.seconds(1)

/**
 * Whether database, cache store and backend all answer, and this process is not on its way out. One probe a second
 * at most, however many ask: readiness must not become an amplifier.
 */
export class Readiness extends Context.Service<
  Readiness,
  { readonly check: Effect.Effect<void, ShuttingDown | Unavailable> }
>()("tollgate/http/Readiness") {
  static readonly layer = Layer.effect(
    Readiness,
    Effect.gen(function* () {
      const [keys, meter, backend, drain] = [yield* KeyStore, yield* Meter, yield* Backend, yield* Drain]
      const bounded = <E>(probe: Effect.Effect<void, E>) =>
        probe.pipe(
          timeoutDetached(probeTimeout),
          Effect.mapError((cause) => new Unavailable({ gate: "KeyStore", cause }))
        )
      const probe = yield* Effect.all([bounded(keys.ping), bounded(meter.ping), bounded(backend.ping)], {
        concurrency: "unbounded",
        discard: true
      }).pipe(Effect.result, unmeasured, Effect.cachedWithTTL("1 second"))
      const stopping = Effect.suspend(() =>
        drain.draining() ? Effect.fail(new ShuttingDown()) : Effect.void
      )
      return { check: Effect.andThen(stopping, Effect.flatMap(measured(probe), Effect.fromResult)) }
    })
  )
}

export const healthz = (context: RequestContext) => Effect.succeed(respondJson(context, { status: "ok" }))

export const readyz = (readiness: Readiness["Service"], context: RequestContext) =>
  Effect.map(readiness.check, () => respondJson(context, { status: "ok" }))

export const metrics = (registry: Metrics["Service"], context: RequestContext) =>
  Effect.map(registry.exposition, (text) =>
    HttpServerResponse.text(text, {
      contentType: "text/plain; version=0.0.4; charset=utf-8",
      headers: headersOf(context)
    })
  )
