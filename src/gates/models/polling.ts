/**
 * Polls the backend for its models in the background. One fiber polls, so polls never overlap. The first poll starts with
 * the layer, and the start does not wait for it. A list is valid for `ttlS` from the start of its poll; after that every
 * model is denied until the backend answers again.
 */
import { Duration, Effect, Exit, Layer, Queue } from "effect"
import { Backend } from "../../backend/Backend.ts"
import { Forbidden } from "../../domain/Errors.ts"
import { Metrics } from "../../observability/Metrics.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { OutageLog } from "../../infra/OutageLog.ts"
import { background, later, makeOutage } from "../../observability/background.ts"
import { loggedCause } from "../../observability/loggedFault.ts"
import { noPolicy, type WindowPolicy, withWindow } from "../../domain/promptWindow.ts"
import type { Model } from "../../domain/Model.ts"
import { Catalog } from "./Catalog.ts"
import { Descriptions } from "./Descriptions.ts"
import { Discovery } from "./Discovery.ts"
import { FairQueue } from "../queue/FairQueue.ts"
import { resolveModel } from "./resolveModel.ts"

export interface DiscoveryOptions {
  /** seconds between polls */
  readonly refreshS: number
  /** seconds for which a list is valid; at least `refreshS` */
  readonly ttlS: number
  /** default: no window is known but what models say */
  readonly window?: WindowPolicy
}

/** A failed poll is repeated sooner, so that a backend that comes back is noticed soon. */
const retryS = 5
/** A requested refresh comes at least this long after the last poll, so that clients cannot cause more polls. */
const minSpacingS = 5
const nothing = new Catalog([])

const make = Effect.fnUntraced(function* ({ refreshS, ttlS, window = noPolicy }: DiscoveryOptions) {
  const backend = yield* Backend
  const nowMs = yield* makeMonotonicMs
  const queue = yield* FairQueue
  const requested = yield* Queue.sliding<void>(1)
  const descriptions = new Descriptions(backend.describe, nowMs)
  const listed = yield* Queue.sliding<void>(1)
  let models: ReadonlyArray<Model> = []
  let catalog = nothing
  let askedAt = Number.NEGATIVE_INFINITY

  const poll = Effect.gen(function* () {
    const startedAt = nowMs()
    const { models: usable } = new Catalog(yield* Effect.timeout(backend.models, Duration.seconds(refreshS)))
    models = usable
    catalog = new Catalog(descriptions.complete(models))
    askedAt = startedAt
    yield* Queue.offer(listed, undefined)
  })

  /** Only the queue needs it, and does without where the server does not tell. */
  const seeLoaded = Effect.suspend(() => {
    const startedAt = nowMs()
    return backend.loaded.pipe(
      Effect.timeout(Duration.seconds(refreshS)),
      Effect.map((listed) => {
        const names = new Catalog(listed).models.map(({ name }) => name)
        queue.seeLoaded(names, nowMs() - startedAt)
      }),
      Effect.catchCause((cause) =>
        Effect.logDebug("the loaded models are not known", loggedCause(cause, "timeout"))
      )
    )
  })

  const pause = (failed: boolean) => {
    const most = Effect.sleep(Duration.seconds(failed ? Math.min(retryS, refreshS) : refreshS))
    const asked = Effect.delay(Queue.take(requested), Duration.seconds(Math.min(minSpacingS, refreshS)))
    return Effect.raceFirst(most, asked)
  }

  const isExpired = () => nowMs() - askedAt > ttlS * 1000
  const unlisted = yield* makeOutage("model_discovery", (cause) =>
    Effect.logWarning("model discovery failed", loggedCause(cause, "timeout"))
  )
  const expiry = new OutageLog(nowMs)
  const logExpiry = expiry.failed(() =>
    Effect.logWarning("model list expired, every model is denied", {
      age_s: Number.isFinite(askedAt) ? Math.round((nowMs() - askedAt) / 1000) : "never listed"
    })
  )
  yield* background(
    "model_discovery",
    queue.limited ? Effect.andThen(poll, seeLoaded) : poll,
    { pause },
    {
      failed: (cause) =>
        Effect.andThen(
          unlisted.failed(cause),
          Effect.suspend(() => (isExpired() ? logExpiry : Effect.void))
        ),
      over: Effect.andThen(unlisted.over, expiry.over(Effect.logInfo("model list is in force again")))
    }
  )

  // Separate from the polls, so that slow descriptions do not delay the list.
  const describe = Effect.suspend(() =>
    Effect.ensuring(
      descriptions.fetchMissing(models),
      Effect.sync(() => (catalog = new Catalog(descriptions.complete(models))))
    )
  )
  const undescribed = yield* makeOutage("model_descriptions", (cause) =>
    Effect.logWarning("model description failed", loggedCause(cause, "timeout"))
  )
  yield* background("model_descriptions", describe, later({ pause: () => Queue.take(listed) }), {
    failed: undescribed.failed,
    // A round without calls does not end the outage.
    over: Effect.suspend(() => (descriptions.failing ? Effect.void : undescribed.over))
  })

  /** The current list, or an empty one when it has expired. */
  const fresh = () => (isExpired() ? nothing : catalog)

  const metrics = yield* Metrics
  yield* metrics.probe({
    name: "tollgate_discovery_age_seconds",
    help: "How long ago the model list was asked for that is in force; +Inf before the first",
    read: Effect.sync(() => (nowMs() - askedAt) / 1000)
  })
  yield* metrics.probe({
    name: "tollgate_discovery_models",
    help: "Models that may be used now; 0 when the list is older than MODEL_DISCOVERY_CACHE_TTL_S",
    read: Effect.sync(() => fresh().models.length)
  })

  return Discovery.of({
    resolve: (key, asked) =>
      Exit.mapError(resolveModel(fresh(), key, asked, window, backend.guards), (error) =>
        error._tag === "Forbidden" && error.what === "model not installed" && isExpired()
          ? new Forbidden({ what: "model list expired" })
          : error
      ),
    effective: (key) => Exit.succeed(fresh().offered(key.facts.caller).map(withWindow(window))),
    isExpired,
    refresh: Effect.asVoid(Queue.offer(requested, undefined))
  })
})

export const layerPolling = (
  options: DiscoveryOptions
): Layer.Layer<Discovery, never, Backend | FairQueue | Metrics> => Layer.effect(Discovery, make(options))
