/**
 * The queue in Redis, shared by all replicas. Each method is one script (`queue.lua`) and one round trip. When
 * another replica's call gives this replica a place, a Pub/Sub message on its own channel tells it; a lost message
 * delays it by one beat.
 */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Effect, Layer, Option, Schema } from "effect"
import { Redis } from "../../../infra/Redis.ts"
import {
  type Bounds,
  defaultBatchEveryMs,
  defaultGraceMs,
  Full,
  Granted,
  allReportedMs,
  assumedLoadMs,
  assumedTurnMs,
  defaultTurnMaxMs,
  maxIdleKeys,
  maxModels,
  maxPairs,
  maxRetryAfterS,
  type Message as Told,
  noticeableLoadMs,
  QueueStore,
  QueueStoreDown,
  type QueueStoreOptions,
  turnsRemembered,
  Waiting
} from "../QueueStore.ts"

export interface RedisQueueStoreOptions extends QueueStoreOptions {
  /** in front of every key. `tollgate:` */
  readonly prefix?: string
}

const lua = readFileSync(path.join(import.meta.dirname, "queue.lua"), "utf8")

const Entered = Schema.Tuple([Schema.Literals(["granted", "waiting", "full"]), Schema.FiniteFromString])
const Left = Schema.Tuple([Schema.Literal("left"), Schema.FiniteFromString])
const Ended = Schema.Tuple([Schema.Literal("ended"), Schema.FiniteFromString])
const Restored = Schema.Tuple([Schema.Literal("restored")])
const Message = Schema.Struct({
  id: Schema.String,
  loaded: Schema.optionalKey(Schema.Boolean),
  retryAfterS: Schema.optionalKey(Schema.Finite)
})
const decodeMessage = Schema.decodeUnknownOption(Schema.fromJsonString(Message))
const Use = Schema.Struct({
  name: Schema.String,
  resident: Schema.Boolean,
  running: Schema.Finite,
  waiting: Schema.Finite
})
/** messages, unknown, models, until something changes, the replicas that are known; none after a loss */
const Beaten = Schema.Tuple([
  Schema.Literal("beat"),
  Schema.fromJsonString(Schema.Array(Message)),
  Schema.fromJsonString(Schema.Array(Schema.String)),
  Schema.fromJsonString(Schema.Array(Use)),
  Schema.FiniteFromString,
  Schema.fromJsonString(Schema.Array(Schema.String))
])

/** What is the same for both twins. */
const constants = {
  allReportedMs,
  turnsRemembered,
  assumedTurnMs,
  maxRetryAfterS,
  assumedLoadMs,
  noticeableLoadMs,
  maxModels,
  maxPairs,
  maxIdleKeys
}

/** `time` (epoch ms) takes the place of Redis's own time in tests: undefined lets the script ask Redis. */
export const makeRedisQueueStore = Effect.fnUntraced(function* (
  options: RedisQueueStoreOptions,
  time: Effect.Effect<number | undefined> = Effect.undefined
) {
  const redis = yield* Redis
  const replica = randomUUID()
  // The number changes with the form of what is stored: two versions do not read each other.
  const prefix = `${options.prefix ?? "tollgate:"}{queue}:2`
  const script = redis.script(lua)
  const fixed = {
    leaseMs: options.leaseS * 1000,
    graceMs: options.graceMs ?? defaultGraceMs,
    batchEveryMs: options.batchEveryMs ?? defaultBatchEveryMs,
    ...constants
  }

  /** the replicas that were known before a loss */
  let peers: ReadonlyArray<string> = []
  const listeners = new Set<(message: Told) => Effect.Effect<void>>()
  yield* redis.subscribe(
    [`${prefix}:told:${replica}`],
    Effect.fnUntraced(function* (_channel, text) {
      const message = Option.getOrUndefined(decodeMessage(text))
      if (message !== undefined) for (const listener of listeners) yield* listener(message)
    })
  )

  /** Runs one verb, and decodes its answer. */
  const call = <A, I>(verb: string, answer: Schema.Codec<A, I>) => {
    const decode = Schema.decodeUnknownEffect(answer)
    return (bounds: Bounds, more: object) =>
      Effect.gen(function* () {
        const { depth, maxLoadedModels, places, turnMaxMs = defaultTurnMaxMs } = bounds
        const limits = { depth, maxLoadedModels, places, turnMaxMs }
        // Read once in a while, so that the script need not ask for it at each call.
        yield* redis.server
        const ask = { verb, now: yield* time, run: redis.runId(), replica, fixed, bounds: limits, ...more }
        return yield* decode(yield* script([prefix], [JSON.stringify(ask)]))
      }).pipe(Effect.mapError((cause) => new QueueStoreDown({ cause })))
  }
  const [enter, leave, end] = [call("enter", Entered), call("leave", Left), call("end", Ended)]
  const [beat, restore] = [call("beat", Beaten), call("restore", Restored)]

  return QueueStore.of({
    enter: Effect.fnUntraced(function* (ticket, bounds) {
      const answer = yield* enter(bounds, { ticket })
      switch (answer[0]) {
        case "granted":
          return new Granted({ loaded: answer[1] === 1 })
        case "waiting":
          return new Waiting({ order: answer[1] })
        case "full":
          return new Full({ retryAfterS: answer[1] })
      }
    }),
    leave: (id, bounds) => Effect.map(leave(bounds, { id }), ([, retryAfterS]) => retryAfterS),
    end: (id, used, bounds, loadMs) => Effect.map(end(bounds, { id, used, loadMs }), ([, ms]) => ms),
    beat: (running, waiting, bounds, seen) =>
      Effect.map(
        beat(bounds, { running, waiting, seen, peers }),
        ([, messages, unknown, models, changesInMs, replicas]) => {
          if (replicas.length > 0) peers = replicas
          return { changesInMs, messages, unknown, models }
        }
      ),
    restore: (held, bounds) => Effect.asVoid(restore(bounds, { held })),
    onMessage: (listener) =>
      Effect.acquireRelease(
        Effect.sync(() => void listeners.add(listener)),
        () => Effect.sync(() => void listeners.delete(listener))
      )
  })
})

export const layerRedis = (options: RedisQueueStoreOptions): Layer.Layer<QueueStore, never, Redis> =>
  Layer.effect(QueueStore, makeRedisQueueStore(options))
