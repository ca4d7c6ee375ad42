/**
 * The queue in Redis, shared by all replicas. Each method is one script (`queue.lua`) and one round trip. When
 * another replica's call gives this replica a place, a Pub/Sub message on its own channel tells it; a lost message
 * delays it by one beat.
 */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { Effect, Layer, Option, Schema } from "effect"
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

const decodeText = Schema.decodeUnknownOption(
  Schema.TupleWithRest(Schema.Tuple([Schema.String]), [Schema.String])
)
const decodeBeat = Schema.decodeUnknownOption(
  Schema.Tuple([
    Schema.Literal("beat"),
    Schema.Array(Schema.String),
    Schema.Array(Schema.String),
    Schema.Array(Schema.String)
  ])
)

/** `<retryAfterS> <id>` */
const displacedOf = (words: string): ReadonlyArray<Displaced> => {
  const [, figure, id] = /^(\d+) (.+)$/.exec(words) ?? []
  return figure === undefined || id === undefined ? [] : [{ id, retryAfterS: Number(figure) }]
}

const nonsense = (verb: string) => new QueueStoreDown({ cause: `unexpected answer to ${verb}` })

const wordsOf = (ticket: Ticket): ReadonlyArray<RedisArgument> => [
  ticket.id,
  ticket.tenant,
  ticket.key,
  ticket.weight,
  ticket.priority,
  ticket.cost
]

/** `clock` in place of Redis's own time is for tests. */
export const makeRedisQueueStore = Effect.fnUntraced(function* (
  options: RedisQueueStoreOptions,
  clock?: Effect.Effect<number>
) {
  const redis = yield* Redis
  const replica = randomUUID()
  const prefix = `${options.prefix ?? "tollgate:"}{queue}`
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
  const time = clock ?? Effect.succeed(-1)

  const send = (verb: string, { depth, places }: Bounds, more: ReadonlyArray<RedisArgument>) =>
    Effect.flatMap(time, (now) =>
      script([prefix], [verb, now, redis.runId(), ...fixed, places, depth, ...more])
    ).pipe(Effect.mapError(({ cause }) => new QueueStoreDown({ cause })))

  /** The words of an answer, when they begin with one of `expected`. */
  const ask = (
    verb: string,
    expected: ReadonlyArray<string>,
    bounds: Bounds,
    more: ReadonlyArray<RedisArgument>
  ) =>
    Effect.flatMap(send(verb, bounds, more), (value) => {
      const words = Option.getOrUndefined(decodeText(value))
      return words !== undefined && expected.includes(words[0])
        ? Effect.succeed(words)
        : Effect.fail(nonsense(verb))
    })

  const numberOf = (verb: string, word: string | undefined) => {
    const number = Number(word)
    return word !== undefined && Number.isFinite(number)
      ? Effect.succeed(number)
      : Effect.fail(nonsense(verb))
  }

  const listeners = new Set<(id: string) => void>()
  const displacedListeners = new Set<(displaced: Displaced) => void>()
  const [channel, displacedChannel] = [`${prefix}:granted:${replica}`, `${prefix}:displaced:${replica}`]
  // A missed message costs one beat.
  yield* redis.subscribe([channel, displacedChannel], (name, text) => {
    if (name === channel) for (const listener of listeners) listener(text)
    if (name !== displacedChannel) return
    for (const displaced of displacedOf(text)) for (const listener of displacedListeners) listener(displaced)
  })

  return QueueStore.of({
    enter: Effect.fnUntraced(function* (ticket, bounds) {
      const [kind, figure] = yield* ask("enter", ["granted", "waiting", "full"], bounds, wordsOf(ticket))
      if (kind === "granted") return new Granted()
      const number = yield* numberOf("enter", figure)
      return kind === "waiting" ? new Waiting({ order: number }) : new Full({ retryAfterS: number })
    }),
    leave: (id, bounds) =>
      Effect.flatMap(ask("leave", ["left"], bounds, [id]), ([, figure]) => numberOf("leave", figure)),
    end: (id, used, bounds) => Effect.asVoid(ask("end", ["ended"], bounds, [id, used])),
    beat: (running, waiting, bounds) =>
      Effect.flatMap(send("beat", bounds, [running.length, ...running, ...waiting]), (value) => {
        const beat = decodeBeat(value)
        return Option.isSome(beat)
          ? Effect.succeed({
              granted: beat.value[1],
              unknown: beat.value[2],
              displaced: beat.value[3].flatMap(displacedOf)
            })
          : Effect.fail(nonsense("beat"))
      }),
    restore: (held, bounds) =>
      Effect.asVoid(
        ask(
          "restore",
          ["restored"],
          bounds,
          held.flatMap(({ order, ticket }) => [...wordsOf(ticket), order ?? -1])
        )
      ),
    onGranted: (listener) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    onDisplaced: (listener) => {
      displacedListeners.add(listener)
      return () => void displacedListeners.delete(listener)
    }
  })
})

export const layerRedis = (options: RedisQueueStoreOptions): Layer.Layer<QueueStore, never, Redis> =>
  Layer.effect(QueueStore, makeRedisQueueStore(options))
