/**
 * The Meter in Redis: counters that all replicas share, on Redis's own clock. Each verb is one script
 * (`scripts.ts`), sent as one EVALSHA, and may be repeated: one whose answer was lost can be sent again. A command
 * that was given up on and runs late all the same does nothing after its `settle` or `cancel`.
 *
 * Needs Redis 7.0 or later, `noeviction`, and permission for `INFO` beside the data commands; nobody is admitted on
 * anything else (`fitness.ts`).
 */
import { randomUUID } from "node:crypto"
import { Clock, Effect, Layer, Schema } from "effect"
import { type Period, periods } from "../../domain/Limits.ts"
import { Redis } from "../../infra/Redis.ts"
import {
  bucketsAt,
  claimNames,
  dayNumber,
  headroomOf,
  leastOf,
  lifeOf,
  marked,
  refusal,
  tagOf,
  whole
} from "./answers.ts"
import { type Account, type Claims, Meter, MeterDown, Missing, Reserved, type Reservation } from "./Meter.ts"
import { fitness } from "./fitness.ts"
import { scripts } from "./scripts.ts"

export interface Options {
  /** seconds a slot and its hold live without being renewed (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** seconds a request id is remembered after its last verb; longer than any late call. 3600 */
  readonly rememberS?: number
  /** in front of every key. `tollgate:` */
  readonly prefix?: string
}

type Verb = keyof typeof scripts

const Reply = Schema.Tuple([
  Schema.Literals([
    "reserved",
    "refused",
    "missing",
    "stale",
    "ended",
    "renewed",
    "left",
    "surveyed",
    "done"
  ]),
  Schema.Array(Schema.Int),
  // The ids a survey names.
  Schema.optionalKey(Schema.Array(Schema.String))
])
type Reply = typeof Reply.Type
const decodeReply = Schema.decodeUnknownEffect(Reply)

/** A reply with fewer numbers than it should have is no answer. */
const at = (numbers: ReadonlyArray<number>, i: number): number => numbers[i] ?? Number.NaN

const nonsense = (verb: Verb, reply: Reply) => new MeterDown({ cause: `unexpected ${reply[0]} from ${verb}` })

/** Asks the scripts for Redis's own time. */
export const serverTime: Effect.Effect<number> = Effect.succeed(-1)

/** `clock` is `serverTime`, except in tests, which tell the scripts the time (epoch ms) of a clock they can move. */
export const makeRedis = (
  redis: Redis["Service"],
  options: Options,
  clock: Effect.Effect<number>
): Meter["Service"] => {
  const verbs = {
    reserve: redis.script(scripts.reserve),
    renew: redis.script(scripts.renew),
    settle: redis.script(scripts.settle),
    cancel: redis.script(scripts.cancel),
    peek: redis.script(scripts.peek),
    survey: redis.script(scripts.survey),
    repair: redis.script(scripts.repair),
    load: redis.script(scripts.load)
  } satisfies Record<Verb, unknown>
  const prefix = options.prefix ?? "tollgate:"
  /** Of this process alone: each has to find out for itself. */
  const reminder = `${prefix}reminder:${randomUUID()}`

  const nameOf = (account: Account) => `${prefix}${tagOf(account)}:${account.key}`
  const keysOf = (account: Account, id: string, instant: number): Array<string> => {
    const [name, buckets] = [nameOf(account), bucketsAt(instant)]
    return [
      `${name}:account`,
      `${prefix}${tagOf(account)}:request:${id}`,
      ...periods.map((period) => `${name}:tokens:${buckets[period]}`)
    ]
  }

  const down = ({ cause }: { readonly cause: unknown }) => new MeterDown({ cause })
  const send = (verb: Verb, keys: ReadonlyArray<string>, args: ReadonlyArray<string | number>) =>
    verbs[verb](keys, [...args, redis.runId]).pipe(
      Effect.flatMap(decodeReply),
      // A reply that cannot be read is its own cause.
      Effect.mapError((error) =>
        error._tag === "RedisFailed" ? down(error) : new MeterDown({ cause: error })
      )
    )

  const argsOf = ({ limits, budgets }: Claims, id: string, instant: number, more: ReadonlyArray<number>) =>
    Effect.map(clock, (now) => [
      id,
      now,
      dayNumber(instant),
      limits.rpm,
      limits.tpm,
      limits.concurrent,
      ...periods.map((period) => budgets[period] ?? -1),
      options.leaseS * 1000,
      (options.rememberS ?? 3600) * 1000,
      ...more
    ])

  /** Runs `verb` with the counters of `instant`; when Redis names another instant, with those. */
  const run = (
    verb: Verb,
    claims: Claims,
    id: string,
    instant: number,
    more: ReadonlyArray<number>,
    attempts = 3
  ): Effect.Effect<Reply, MeterDown> =>
    Effect.flatMap(argsOf(claims, id, instant, more), (args) =>
      Effect.flatMap(send(verb, keysOf(claims.account, id, instant), args), (reply) => {
        if (reply[0] !== "stale") return Effect.succeed(reply)
        return attempts > 1
          ? run(verb, claims, id, at(reply[1], 0), more, attempts - 1)
          : new MeterDown({ cause: "the store cannot say which day it is" })
      })
    )

  /** As `run`, for verbs of the present: the host's clock guesses the day, Redis corrects it. */
  const runNow = (verb: Verb, claims: Claims, id: string, more: ReadonlyArray<number>) =>
    Effect.flatMap(Clock.currentTimeMillis, (host) => run(verb, claims, id, host, more))

  const fit = fitness(redis.servers).pipe(
    Effect.mapError((error) => (error._tag === "RedisFailed" ? down(error) : error))
  )

  /** For verbs that are about an account's counters of a given instant and about no request. */
  const once = Effect.fnUntraced(function* (
    verb: Verb,
    account: Account,
    instant: number,
    more: ReadonlyArray<number>
  ) {
    const none = { account, limits: { rpm: 0, tpm: 0, concurrent: 0 }, budgets: {} }
    return yield* send(verb, keysOf(account, "", instant), yield* argsOf(none, "", instant, more))
  })

  const grip = (reservation: Reservation): Array<number> => [
    reservation.admittedAt,
    whole(reservation.held),
    whole(reservation.available),
    reservation.slot ? 1 : 0
  ]

  const missingOf = (numbers: ReadonlyArray<number>) =>
    new Missing({
      buckets: marked(
        bucketsAt(at(numbers, 0)),
        numbers.slice(1, 4).map((flag) => flag === 1)
      )
    })

  const left = (claims: Claims, numbers: ReadonlyArray<number>, from: number) =>
    headroomOf(claims, at(numbers, from), at(numbers, from + 1), numbers.slice(from + 2, from + 5))

  return Meter.of({
    reserve: Effect.fnUntraced(function* (claims, ask) {
      yield* fit
      const reply = yield* runNow("reserve", claims, ask.id, [
        whole(ask.tokens),
        ask.slot ? 1 : 0,
        leastOf(ask)
      ])
      const [tag, n] = reply
      switch (tag) {
        case "missing":
          return missingOf(n)
        case "ended":
          return yield* new MeterDown({ cause: `request ${ask.id} is over` })
        case "refused": {
          const by = claimNames[at(n, 0) - 1]
          if (by === undefined) return yield* nonsense("reserve", reply)
          return refusal(by, at(n, 1), at(n, 2), at(n, 3), left(claims, n, 4))
        }
        case "reserved": {
          const admittedAt = at(n, 0)
          return new Reserved({
            reservation: {
              id: ask.id,
              claims,
              held: at(n, 1),
              available: at(n, 2),
              admittedAt,
              buckets: marked(
                bucketsAt(admittedAt),
                n.slice(4, 7).map((flag) => flag === 1)
              ),
              slot: at(n, 3) === 1
            },
            headroom: left(claims, n, 7)
          })
        }
        default:
          return yield* nonsense("reserve", reply)
      }
    }),

    renew: Effect.fnUntraced(function* (reservation, used, want) {
      const { id, claims, admittedAt } = reservation
      const more = [...grip(reservation), whole(used), whole(want)]
      const reply = yield* run("renew", claims, id, admittedAt, more)
      if (reply[0] !== "renewed") return yield* nonsense("renew", reply)
      return { held: at(reply[1], 0), exhausted: at(reply[1], 1) === 1 }
    }),

    settle: Effect.fnUntraced(function* (reservation, used) {
      const { id, claims, admittedAt } = reservation
      const reply = yield* run("settle", claims, id, admittedAt, [...grip(reservation), whole(used)])
      if (reply[0] !== "left") return yield* nonsense("settle", reply)
      return left(claims, reply[1], 0)
    }),

    cancel: Effect.fnUntraced(function* ({ claims, id }) {
      const reply = yield* runNow("cancel", claims, id, [])
      if (reply[0] !== "done") return yield* nonsense("cancel", reply)
    }),

    peek: Effect.fnUntraced(function* (claims) {
      const reply = yield* runNow("peek", claims, "", [])
      if (reply[0] === "missing") return missingOf(reply[1])
      if (reply[0] !== "left") return yield* nonsense("peek", reply)
      return left(claims, reply[1], 0)
    }),

    load: Effect.fnUntraced(function* (account, totals) {
      if (totals.length === 0) return
      const keys = totals.map(({ bucket }) => `${nameOf(account)}:tokens:${bucket}`)
      const values = totals.flatMap(({ bucket, tokens }) => [whole(tokens), lifeOf(bucket)])
      const reply = yield* send("load", keys, [yield* clock, ...values])
      if (reply[0] !== "done") return yield* nonsense("load", reply)
    }),

    survey: Effect.fnUntraced(function* (account, instant) {
      const reply = yield* once("survey", account, instant, [])
      if (reply[0] !== "surveyed") return yield* nonsense("survey", reply)
      const n = reply[1]
      const found: { -readonly [P in Period]?: number } = {}
      periods.forEach((period, i) => {
        if (at(n, 2 + i) >= 0) found[period] = at(n, 2 + i)
      })
      return { mark: at(n, 0), open: at(n, 1), lapsed: reply[2] ?? [], totals: found }
    }),

    repair: Effect.fnUntraced(function* (account, instant, mark, totals) {
      const amounts = periods.map((period) => (totals[period] === undefined ? -1 : whole(totals[period])))
      const reply = yield* once("repair", account, instant, [mark, ...amounts])
      if (reply[0] !== "done") return yield* nonsense("repair", reply)
      return at(reply[1], 0) === 1
    }),

    remembers: redis
      .send("SET", [reminder, 1, "EX", 3600, "GET"])
      .pipe(Effect.mapBoth({ onFailure: down, onSuccess: (before) => before !== null })),

    ping: Effect.andThen(fit, redis.send("PING", []).pipe(Effect.mapError(down), Effect.asVoid))
  })
}

export const layerRedis = (options: Options): Layer.Layer<Meter, never, Redis> =>
  Layer.effect(
    Meter,
    Effect.map(Redis, (redis) => makeRedis(redis, options, serverTime))
  )
