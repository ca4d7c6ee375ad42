/**
 * Which models are pinned now (`set-models --pin`), and the gateway's own requests that keep them loaded. The queue's state says
 * when one goes out, and from which replica (`PinnedModels.ts`). Such a request has no key: it takes no slot and no place, and is
 * not charged. None goes out while the circuit is open.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Data, Effect, Layer, Schema } from "effect"
import { Backend } from "../../backend/Backend.ts"
import { CircuitBreaker } from "../../backend/CircuitBreaker.ts"
import { CircuitOpen } from "../../domain/Errors.ts"
import { withTag } from "../../domain/modelName.ts"
import { makeMonotonicMs, timeoutDetached } from "../../infra/time.ts"
import { background, makeOutage, spaced } from "../../observability/background.ts"
import { loggedCause } from "../../observability/loggedFault.ts"
import { Metrics } from "../../observability/Metrics.ts"
import { FairQueue } from "./FairQueue.ts"
import { baseOf, maxPins, pinnedKeepAliveS } from "./QueueStore.ts"

/** The database failed. `cause` is for the log. */
export class PinsDown extends Data.TaggedError("PinsDown")<{ readonly cause: unknown }> {}

const decode = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ model: Schema.String })))

/** `hours` as `22-06`: from the first hour of the day until the second, in UTC. */
export const isInForce = `(hours IS NULL OR CASE
  WHEN left(hours, 2) < right(hours, 2) THEN to_char(now() AT TIME ZONE 'UTC', 'HH24') >= left(hours, 2)
    AND to_char(now() AT TIME ZONE 'UTC', 'HH24') < right(hours, 2)
  ELSE to_char(now() AT TIME ZONE 'UTC', 'HH24') >= left(hours, 2) OR to_char(now() AT TIME ZONE 'UTC', 'HH24') < right(hours, 2) END)`

const make = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  return {
    /** Names of the models that are pinned now, by the database's clock. */
    now: pg`SELECT model FROM model_pins WHERE ${pg.literal(isInForce)} ORDER BY model LIMIT ${maxPins}`.pipe(
      Effect.flatMap(decode),
      timeoutDetached("2 seconds"),
      Effect.mapBoth({
        onSuccess: (rows): ReadonlyArray<string> => rows.map(({ model }) => withTag(model)),
        onFailure: (cause) => new PinsDown({ cause })
      })
    )
  }
})

export class Pins extends Context.Service<Pins>()("tollgate/gates/queue/Pins", { make }) {
  static readonly layer: Layer.Layer<Pins, never, PgClient.PgClient> = Layer.effect(Pins, make)
}

/** A change of the pins is in force after this time, milliseconds. */
const readEveryMs = 5000

/** Keeps the pinned models loaded, with a queue. */
export const layerPinned: Layer.Layer<never, never, Pins | Backend | CircuitBreaker | FairQueue | Metrics> =
  Layer.effectDiscard(
    Effect.gen(function* () {
      const backend = yield* Backend
      const breaker = yield* CircuitBreaker
      const queue = yield* FairQueue
      const metrics = yield* Metrics
      const now = yield* makeMonotonicMs
      const pins = yield* Pins
      if (!queue.limited) return
      // While the database does not answer, the pins stay as they are.
      yield* background(
        "model_pins",
        Effect.map(pins.now, (names) => queue.pin(names)),
        spaced(readEveryMs)
      )
      const load = Effect.gen(function* () {
        const { name, over } = yield* queue.toLoad
        const since = now()
        const [model, window] = [baseOf(name), name.split(" ")[1]]
        yield* Effect.gen(function* () {
          // Half-open it may stay for hours, until a client asks: the model is to be there before that.
          if ((yield* breaker.state) === "open") return yield* new CircuitOpen({ retryAfterS: 1 })
          yield* backend.load(model, window === undefined ? undefined : Number(window), pinnedKeepAliveS)
        }).pipe(Effect.onExit((exit) => Effect.sync(() => over(exit._tag === "Success"))))
        const ms = Math.round(now() - since)
        yield* metrics.pinnedLoaded(model)
        yield* Effect.logInfo("pinned model loaded", { model, ms })
      })
      yield* background(
        "pinned_load",
        load,
        spaced(0),
        yield* makeOutage("pinned_load", (cause) =>
          Effect.logWarning("pinned model not loaded", loggedCause(cause, "circuit open"))
        )
      )
    })
  )
