/**
 * The queue in Redis, shared by all replicas. Each method is one script (`queue.lua`) and one round trip. When
 * another replica's call gives this replica a place, a Pub/Sub message on its own channel tells it; a lost message
 * delays it by one beat.
 */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Effect, Layer, Schema } from "effect"
import { Redis, type RedisArgument } from "../../../infra/Redis.ts"
import {
  type Bounds,
  defaultBatchEveryMs,
  defaultGraceMs,
  Full,
  Granted,
  assumedLoadMs,
  assumedTurnMs,
  defaultTurnMaxMs,
  maxIdleKeys,
  maxModels,
  maxRetryAfterS,
  type Message,
  type ModelUse,
  noticeableLoadMs,
  type Pins,
  pinTimes,
  QueueStore,
  QueueStoreDown,
  type QueueStoreOptions,
  turnsRemembered,
  type Ticket,
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
const Texts = Schema.Array(Schema.String)
/** messages, unknown, models, the model to load or '', until something changes */
const Beaten = Schema.Tuple([
  Schema.Literal("beat"),
  Texts,
  Texts,
  Texts,
  Schema.String,
  Schema.FiniteFromString
])

/** `granted <loaded> <id>` or `displaced <retryAfterS> <id>` */
const messageOf = (words: string): ReadonlyArray<Message> => {
  const [, event, figure, id] = /^(granted|displaced) (\d+) (.+)$/.exec(words) ?? []
  if (id === undefined) return []
  return [event === "granted" ? { id, loaded: figure === "1" } : { id, retryAfterS: Number(figure) }]
}

/** `<resident> <running> <waiting> <pinned> <name>` */
const useOf = (words: string): ReadonlyArray<ModelUse> => {
  const [, resident, running, waiting, pinned, name] = /^([01]) (\d+) (\d+) ([01]) (.+)$/.exec(words) ?? []
  return name === undefined
    ? []
    : [
        {
          name,
          resident: resident === "1",
          pinned: pinned === "1",
          running: Number(running),
          waiting: Number(waiting)
        }
      ]
}

const pinWordsOf = (pins: Pins | undefined): ReadonlyArray<RedisArgument> =>
  pins === undefined
    ? [-1]
    : [
        pins.names.length,
        ...pins.names,
        pins.loading ?? "",
        pins.loaded ?? "",
        pinTimes.renewMs,
        pinTimes.idleMs,
        pinTimes.firstMs,
        pinTimes.mostMs
      ]

const wordsOf = (ticket: Ticket): ReadonlyArray<RedisArgument> => [
  ticket.id,
  ticket.tenant,
  ticket.key,
  ticket.weight,
  ticket.priority,
  ticket.cost,
  ticket.model
]

/** `time` (epoch ms) takes the place of Redis's own time in tests: -1 lets the script ask Redis. */
export const makeRedisQueueStore = Effect.fnUntraced(function* (
  options: RedisQueueStoreOptions,
  time: Effect.Effect<number> = Effect.succeed(-1)
) {
  const redis = yield* Redis
  const replica = randomUUID()
  // The number changes with the form of what is stored: two versions do not read each other.
  const prefix = `${options.prefix ?? "tollgate:"}{queue}:2`
  const script = redis.script(lua)
  const fixed = [
    replica,
    options.leaseS * 1000,
    options.graceMs ?? defaultGraceMs,
    options.batchEveryMs ?? defaultBatchEveryMs,
    turnsRemembered,
    assumedTurnMs,
    maxRetryAfterS,
    assumedLoadMs,
    noticeableLoadMs,
    maxModels,
    maxIdleKeys
  ]

  const listeners = new Set<(message: Message) => Effect.Effect<void>>()
  yield* redis.subscribe(
    [`${prefix}:told:${replica}`],
    Effect.fnUntraced(function* (_channel, text) {
      for (const message of messageOf(text)) for (const listener of listeners) yield* listener(message)
    })
  )

  /** Runs one verb, and decodes its answer. */
  const call = <A, I>(answer: Schema.Codec<A, I>) => {
    const decode = Schema.decodeUnknownEffect(answer)
    return (verb: string, bounds: Bounds, more: ReadonlyArray<RedisArgument>) =>
      Effect.gen(function* () {
        const { depth, maxLoadedModels = -1, places, turnMaxMs = defaultTurnMaxMs } = bounds
        const limits = [places, depth, maxLoadedModels, turnMaxMs]
        const args = [verb, yield* time, redis.runId(), ...fixed, ...limits, ...more]
        return yield* decode(yield* script([prefix], args))
      }).pipe(Effect.mapError((cause) => new QueueStoreDown({ cause })))
  }
  const [enter, leave, end] = [call(Entered), call(Left), call(Ended)]
  const [beat, restore] = [call(Beaten), call(Restored)]

  return QueueStore.of({
    enter: Effect.fnUntraced(function* (ticket, bounds) {
      const answer = yield* enter("enter", bounds, wordsOf(ticket))
      switch (answer[0]) {
        case "granted":
          return new Granted({ loaded: answer[1] === 1 })
        case "waiting":
          return new Waiting({ order: answer[1] })
        case "full":
          return new Full({ retryAfterS: answer[1] })
      }
    }),
    leave: (id, bounds) => Effect.map(leave("leave", bounds, [id]), ([, retryAfterS]) => retryAfterS),
    end: (id, used, bounds, loadMs = -1) =>
      Effect.map(end("end", bounds, [id, used, loadMs]), ([, ms]) => ms),
    beat: (running, waiting, bounds, { agoMs, names } = { agoMs: -1, names: [] }, pins) =>
      Effect.map(
        beat("beat", bounds, [
          agoMs,
          names.length,
          ...names,
          ...pinWordsOf(pins),
          running.length,
          ...running,
          ...waiting
        ]),
        ([, messages, unknown, models, load, changesInMs]) => ({
          changesInMs,
          messages: messages.flatMap(messageOf),
          unknown,
          models: models.flatMap(useOf),
          load: load === "" ? undefined : load
        })
      ),
    restore: (held, bounds) =>
      Effect.asVoid(
        restore(
          "restore",
          bounds,
          held.flatMap(({ order, ticket }) => [...wordsOf(ticket), order ?? -1])
        )
      ),
    onMessage: (listener) =>
      Effect.acquireRelease(
        Effect.sync(() => void listeners.add(listener)),
        () => Effect.sync(() => void listeners.delete(listener))
      )
  })
})

export const layerRedis = (options: RedisQueueStoreOptions): Layer.Layer<QueueStore, never, Redis> =>
  Layer.effect(QueueStore, makeRedisQueueStore(options))
