/**
 * Discovery by polling the backend in the background. One fiber polls, so polls never overlap; the first starts
 * with the layer and does not hold up the boot. A list is good for `ttlS` from the moment it was asked for: after
 * that, nobody is permitted anything until the backend answers again.
 */
import { Cause, Duration, Effect, Layer, Queue } from "effect"
import { Backend } from "../../backend/Backend.ts"
import { BackendFailed, Forbidden } from "../../domain/Errors.ts"
import { evidence } from "../../domain/Evidence.ts"
import { makeMonotonicMs } from "../../infra/monotonic.ts"
import { Catalog } from "./Catalog.ts"
import { Discovery } from "./Discovery.ts"

export interface DiscoveryOptions {
  /** seconds between polls */
  readonly refreshS: number
  /** seconds a list is good for; at least `refreshS` */
  readonly ttlS: number
}

/** A failed poll is repeated sooner than a good one: a backend that comes back should not have to wait. */
const retryS = 5
/** A refresh that is asked for never comes closer than this to the poll before. */
const spacingMs = 1000
const nothing = new Catalog([])

/** Like a refused request, by its fault alone: what lies behind it names the backend's address. A defect is told whole. */
const tell = (cause: Cause.Cause<unknown>): Effect.Effect<void> => {
  if (Cause.hasDies(cause)) return Effect.logWarning("model discovery failed", cause)
  const error = Cause.squash(cause)
  return Effect.logWarning(
    `model discovery failed: ${error instanceof BackendFailed ? error.fault : "timeout"}`
  )
}

const make = Effect.fnUntraced(function* ({ refreshS, ttlS }: DiscoveryOptions) {
  const [backend, nowMs] = [yield* Backend, yield* makeMonotonicMs]
  const wanted = yield* Queue.sliding<void>(1)
  let catalog = nothing
  let askedAt = Number.NEGATIVE_INFINITY
  let failing = false

  const poll = Effect.gen(function* () {
    const startedAt = nowMs()
    const models = yield* Effect.timeout(backend.models, Duration.seconds(refreshS))
    catalog = new Catalog(models)
    askedAt = startedAt
    if (failing) yield* Effect.logInfo("model discovery works again")
    failing = false
  }).pipe(
    // Caught here, before the loop: a poll that fails, or breaks, must not be the last.
    Effect.catchCause((cause) =>
      Effect.suspend(() => {
        const first = !failing
        failing = true
        return first ? tell(cause) : Effect.void
      })
    )
  )

  const pause = Effect.suspend(() => {
    const most = Effect.sleep(Duration.seconds(failing ? Math.min(retryS, refreshS) : refreshS))
    const asked = Effect.delay(Queue.take(wanted), Duration.millis(spacingMs))
    return Effect.raceFirst(most, asked)
  })

  yield* poll.pipe(Effect.andThen(pause), Effect.forever, Effect.forkScoped({ startImmediately: true }))

  /** What may be relied on now. */
  const fresh = () => (nowMs() - askedAt <= ttlS * 1000 ? catalog : nothing)

  return Discovery.of({
    resolve: (caller, name) =>
      Effect.suspend(() => {
        const model = fresh().resolve(caller.models, name)
        return model === undefined
          ? new Forbidden({ what: "model" })
          : Effect.succeed(evidence("Discovery", model))
      }),
    effective: (caller) => Effect.sync(() => fresh().effective(caller.models)),
    refresh: Effect.asVoid(Queue.offer(wanted, undefined))
  })
})

export const layerLive = (options: DiscoveryOptions): Layer.Layer<Discovery, never, Backend> =>
  Layer.effect(Discovery, make(options))
