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
  type Displaced,
  Full,
  Granted,
  assumedTurnMs,
  maxRetryAfterS,
  type Message,
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

const Entered = Schema.Union([
  Schema.Tuple([Schema.Literal("granted")]),
  Schema.Tuple([Schema.Literals(["waiting", "full"]), Schema.FiniteFromString])
])
const Left = Schema.Tuple([Schema.Literal("left"), Schema.FiniteFromString])
const Done = Schema.Tuple([Schema.Literals(["ended", "restored"])])
const Texts = Schema.Array(Schema.String)
/** granted, unknown, displaced */
const Beaten = Schema.Tuple([Schema.Literal("beat"), Texts, Texts, Texts])

/** `<retryAfterS> <id>` */
const displacedOf = (words: string): ReadonlyArray<Displaced> => {
  const [, figure, id] = /^(\d+) (.+)$/.exec(words) ?? []
  return figure === undefined || id === undefined ? [] : [{ id, retryAfterS: Number(figure) }]
}

const wordsOf = (ticket: Ticket): ReadonlyArray<RedisArgument> => [
  ticket.id,
  ticket.tenant,
  ticket.key,
  ticket.weight,
  ticket.priority,
  ticket.cost
]

/** `time` (epoch ms) takes the place of Redis's own time in tests: -1 lets the script ask Redis. */
export const makeRedisQueueStore = Effect.fnUntraced(function* (
  options: RedisQueueStoreOptions,
  time: Effect.Effect<number> = Effect.succeed(-1)
) {
  const redis = yield* Redis
  const replica = randomUUID()
  const prefix = `${options.prefix ?? "tollgate:"}{queue}`
  const [granted, displaced] = [`${prefix}:granted:${replica}`, `${prefix}:displaced:${replica}`]
  const script = redis.script(lua)
  const fixed = [
    replica,
    options.leaseS * 1000,
    options.graceMs ?? defaultGraceMs,
    options.batchEveryMs ?? defaultBatchEveryMs,
    turnsRemembered,
    assumedTurnMs,
    maxRetryAfterS
  ]

  const listeners = new Set<(message: Message) => Effect.Effect<void>>()
  yield* redis.subscribe(
    [granted, displaced],
    Effect.fnUntraced(function* (channel, text) {
      const messages: ReadonlyArray<Message> = channel === granted ? [{ id: text }] : displacedOf(text)
      for (const message of messages) for (const listener of listeners) yield* listener(message)
    })
  )

  /** Runs one verb, and decodes its answer. */
  const call = <A, I>(answer: Schema.Codec<A, I>) => {
    const decode = Schema.decodeUnknownEffect(answer)
    return (verb: string, { depth, places }: Bounds, more: ReadonlyArray<RedisArgument>) =>
      Effect.gen(function* () {
        const args = [verb, yield* time, redis.runId(), ...fixed, places, depth, ...more]
        return yield* decode(yield* script([prefix], args))
      }).pipe(Effect.mapError((cause) => new QueueStoreDown({ cause })))
  }
  const [enter, leave, done, beat] = [call(Entered), call(Left), call(Done), call(Beaten)]

  return QueueStore.of({
    enter: Effect.fnUntraced(function* (ticket, bounds) {
      const answer = yield* enter("enter", bounds, wordsOf(ticket))
      switch (answer[0]) {
        case "granted":
          return new Granted()
        case "waiting":
          return new Waiting({ order: answer[1] })
        case "full":
          return new Full({ retryAfterS: answer[1] })
      }
    }),
    leave: (id, bounds) => Effect.map(leave("leave", bounds, [id]), ([, retryAfterS]) => retryAfterS),
    end: (id, used, bounds) => Effect.asVoid(done("end", bounds, [id, used])),
    beat: (running, waiting, bounds) =>
      Effect.map(
        beat("beat", bounds, [running.length, ...running, ...waiting]),
        ([, granted, unknown, displaced]) => ({ granted, unknown, displaced: displaced.flatMap(displacedOf) })
      ),
    restore: (held, bounds) =>
      Effect.asVoid(
        done(
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
