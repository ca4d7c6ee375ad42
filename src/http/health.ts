/** Health and metrics: no key, no audit row, no limits. */
import { Cause, Context, Duration, Effect, Layer } from "effect"
import { HttpServerResponse } from "effect/http"
import { Metrics } from "../observability/Metrics.ts"
import { Backend } from "../backend/Backend.ts"
import { type Gate, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import { KeyStore } from "../gates/keys/KeyStore.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { makeMonotonicMs, remembered, timeoutDetached } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"
import { storeFault } from "../infra/storeFault.ts"
import { Drain } from "../infra/Drain.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { headersOf, respondJson } from "./respond.ts"

const probeTimeout = Duration.seconds(1)

/** What a replica needs to serve: the database, the cache store, and the model server. */
type Dependency = "database" | "cache" | "backend"

const gates = { database: "KeyStore", cache: "Limiter", backend: "Discovery" } as const satisfies Record<
  Dependency,
  Gate
>
const dependencies = ["database", "cache", "backend"] as const

const make = Effect.gen(function* () {
  const keys = yield* KeyStore
  const meter = yield* Meter
  const backend = yield* Backend
  const drain = yield* Drain
  const discovery = yield* Discovery
  const metrics = yield* Metrics
  const nowMs = yield* makeMonotonicMs

  const probeOf = <E>(dependency: Dependency, ping: Effect.Effect<unknown, E>) => {
    const log = new OutageLog(nowMs)
    // The cause of a failed backend call names its address.
    const isStore = dependency !== "backend"
    const faultOf = (cause: unknown) => (isStore ? storeFault(cause).fault : "down")
    return ping.pipe(
      timeoutDetached(probeTimeout),
      Effect.tapError((cause) => {
        const line = [{ dependency, fault: faultOf(cause) }, ...(isStore ? [Cause.fail(cause)] : [])]
        return log.failed(() => Effect.logWarning("dependency not ready", ...line))
      }),
      Effect.tap(log.over(Effect.logInfo("dependency ready again", { dependency }))),
      Effect.match({ onFailure: faultOf, onSuccess: () => "ok" as const }),
      (probe) => remembered(probe, 1000)
    )
  }
  const probes = yield* Effect.all({
    database: probeOf("database", keys.ping),
    cache: probeOf("cache", meter.ping),
    backend: probeOf("backend", backend.ping)
  })
  const all = Effect.all(probes, { concurrency: "unbounded" })
  yield* metrics.probe({
    name: "tollgate_ready",
    help: "Whether a dependency answers, and the stores can be written: database (Postgres), cache (Redis), backend (the model server)",
    labels: ["dependency"],
    read: Effect.map(all, (answers) =>
      dependencies.map((dependency) => ({
        labels: { dependency },
        value: Number(answers[dependency] === "ok")
      }))
    )
  })
  const check = Effect.gen(function* () {
    if (drain.draining()) return yield* new ShuttingDown({})
    const answers = yield* all
    const down = dependencies.find((dependency) => answers[dependency] !== "ok")
    if (down !== undefined) {
      return yield* new Unavailable({ gate: gates[down], cause: `${down} is not ready` })
    }
  })
  const details = Effect.map(all, (answers) =>
    [
      ...dependencies.map((dependency) => `${dependency}=${answers[dependency]}`),
      `models=${discovery.isExpired() ? "expired" : "ok"}`
    ].join(", ")
  )
  return {
    check,
    /** Each dependency with `ok` or what is wrong with it, and the model list with `ok` or `expired`: for the operator. */
    details
  }
})

/**
 * Whether database and cache store can be written, the backend answers, and the gateway is not stopping. Each is asked at most once a
 * second, so that many probes do not become load.
 *
 * `tollgate_ready{dependency}` has the same result for alerts. The first failure of an outage is logged, because a load
 * balancer that removes all replicas gives no reason.
 */
export class Readiness extends Context.Service<Readiness>()("tollgate/http/Readiness", { make }) {
  static readonly layer = Layer.effect(Readiness, make)
}

export const healthz = (context: RequestContext) => Effect.succeed(respondJson(context, { status: "ok" }))

export const readyz = (readiness: Readiness["Service"], context: RequestContext) =>
  Effect.map(readiness.check, () => respondJson(context, { status: "ok" }))

/** The answer of `/readyz` for a client on this machine: `X-Readiness` says what is down. */
export const withDetails = (
  readiness: Readiness["Service"],
  response: HttpServerResponse.HttpServerResponse
): Effect.Effect<HttpServerResponse.HttpServerResponse> =>
  Effect.map(readiness.details, (details) => HttpServerResponse.setHeader(response, "x-readiness", details))

export const metrics = (registry: Metrics["Service"], context: RequestContext) =>
  Effect.map(registry.exposition, (text) =>
    HttpServerResponse.text(text, {
      contentType: "text/plain; version=0.0.4; charset=utf-8",
      headers: headersOf(context)
    })
  )
