/**
 * The Meter in Redis: counters that all replicas share, on Redis's own clock. Each verb is one script (`scripts.ts`) and may be
 * repeated: one whose answer was lost can be sent again. A command that runs after we gave up has no effect once the request
 * is settled or cancelled.
 *
 * Needs Redis 7.0 or later, `noeviction`, and permission for `INFO` beside the data commands; no request is admitted on
 * anything else (`requirements.ts`).
 */
import { randomUUID } from "node:crypto"
import { Clock, Effect, Layer, Record } from "effect"
import { type Day, TimeZone } from "../../../domain/Calendar.ts"
import { tryParseJson } from "../../../domain/json.ts"
import { type Headroom, type Period, periods } from "../../../domain/Limits.ts"
import { type Claims, claimsWithoutLimits, type Reservation } from "../../../domain/Reservation.ts"
import { Redis, type RedisFailed } from "../../../infra/Redis.ts"
import { makeMonotonicMs } from "../../../infra/time.ts"
import { livesOf, type MeterOptions, mostUsersOf } from "../bounds.ts"
import {
  Meter,
  MeterDown,
  type Missing,
  type ReserveRequest,
  Reserved,
  type Surveyed,
  type Verdict
} from "../Meter.ts"
import { headroomOf, leastOf, lifeOf, missingOf, refusal, shapeOf, whole } from "../verdicts.ts"
import { makeAccountCalls, makeKeys } from "./accountCalls.ts"
import { readReply, type Reply } from "./replies.ts"
import { checkRequirements, probeWrites } from "./requirements.ts"
import { type AccountVerb, otherScripts } from "./scripts.ts"

export interface Options extends MeterOptions {
  /** in front of every key. `tollgate:` */
  readonly prefix?: string
}

/** How often a script names another day before the call fails: once, unless midnight passes meanwhile. */
const attempts = 3

const down = ({ cause }: RedisFailed) => new MeterDown({ cause })

const unexpected = (verb: string, reply: unknown) =>
  new MeterDown({ cause: `unexpected answer to ${verb}: ${JSON.stringify(reply).slice(0, 200)}` })

const decode = (verb: string, value: unknown, accounts = 1): Effect.Effect<Reply, MeterDown> => {
  const reply = readReply(value, accounts)
  return reply === undefined ? unexpected(verb, value) : Effect.succeed(reply)
}

const verdictOf = (
  claims: Claims,
  ask: ReserveRequest,
  reply: Reply,
  dayAt: (instant: number) => Day
): Effect.Effect<Verdict, MeterDown> => {
  switch (reply.tag) {
    case "reserved": {
      const { admittedAt, available, held, left, slot } = reply
      const reservation = { id: ask.id, claims, held, available, admittedAt, slot }
      return Effect.succeed(
        new Reserved({ reservation, headroom: headroomOf(claims, dayAt(admittedAt), left) })
      )
    }
    case "refused": {
      const { claim, left, limit, now, waitMs } = reply
      const [name, day] = [shapeOf(claims).claims[claim - 1], dayAt(now)]
      return name === undefined
        ? unexpected("reserve", reply)
        : Effect.succeed(refusal(name, limit, waitMs, { day, now }, headroomOf(claims, day, left)))
    }
    case "missing":
      return Effect.succeed(missingOf(claims, dayAt(reply.instant), reply.flags))
    case "ended":
      return new MeterDown({ cause: `request ${ask.id} is over` })
    default:
      return unexpected("reserve", reply)
  }
}

/** What the scripts need to make a request again that Redis has lost. */
const heldBy = ({ admittedAt, available, held, slot }: Reservation): Array<number> => [
  admittedAt,
  whole(held),
  whole(available),
  slot ? 1 : 0
]

/** -1: not known */
const amountsOf = (totals: { readonly [P in Period]?: number }) =>
  periods.map((period) => (totals[period] === undefined ? -1 : whole(totals[period])))

/** `time` (epoch ms) takes the place of Redis's own time in tests: -1 lets the scripts ask Redis. */
export const makeRedis = Effect.fnUntraced(function* (
  redis: Redis["Service"],
  options: Options,
  time: () => number = () => -1
) {
  const clock = yield* Clock.Clock
  const { dayAt, dayNumbered } = yield* TimeZone
  const keys = makeKeys(options.prefix ?? "tollgate:")
  const { leaseMs, ledgerLagMs, rememberMs } = livesOf(options)
  const ofAccounts = makeAccountCalls(redis, keys, [leaseMs, rememberMs, ledgerLagMs], mostUsersOf(options))
  const ofGroups = Record.map(otherScripts, redis.script)
  const check = checkRequirements(yield* makeMonotonicMs)
  const requirements = check(redis.server)
  /** Of this process alone: each has to find out for itself. */
  const reminder = `${options.prefix ?? "tollgate:"}reminder:${randomUUID()}`

  const call = (
    verb: AccountVerb,
    claims: Claims,
    id: string,
    day: Day,
    own: ReadonlyArray<number>
  ): Effect.Effect<Reply, MeterDown> =>
    Effect.suspend(() =>
      Effect.matchEffect(ofAccounts[verb]({ claims, id, day, now: time(), own }), {
        onFailure: down,
        onSuccess: (value) => decode(verb, value, shapeOf(claims).accounts.length)
      })
    )

  /** Uses the counters of `day`: a reservation is charged to those of the day of its admission. When Redis answers that another day decides, then those of that day. */
  const callOnDay = (
    verb: AccountVerb,
    claims: Claims,
    id: string,
    day: Day,
    own: ReadonlyArray<number>,
    left = attempts
  ): Effect.Effect<Reply, MeterDown> =>
    left === 0
      ? new MeterDown({ cause: "the time of the store is unknown" })
      : Effect.filterOrElse(
          call(verb, claims, id, day, own),
          (reply) => reply.tag !== "stale",
          (reply) => {
            const right = reply.day < 0 ? dayAt(reply.instant) : dayNumbered(reply.day)
            return callOnDay(verb, claims, id, right, own, left - 1)
          }
        )

  /** The host's clock guesses the day, and Redis corrects it. */
  const callToday = (verb: AccountVerb, claims: Claims, id: string, own: ReadonlyArray<number>) =>
    Effect.suspend(() => callOnDay(verb, claims, id, dayAt(clock.currentTimeMillisUnsafe()), own))

  const callGroup = Effect.fnUntraced(function* (
    verb: keyof typeof ofGroups,
    names: ReadonlyArray<string>,
    own: ReadonlyArray<number>
  ) {
    const numbers = JSON.stringify([time(), ...own])
    const text = yield* Effect.mapError(ofGroups[verb](names, [numbers, redis.runId()]), down)
    return yield* decode(verb, tryParseJson(String(text)))
  })

  /** About the counters of `of` at `instant`, and about no request. */
  const callAbout = (
    verb: "survey" | "repair",
    of: Surveyed,
    instant: number,
    own: ReadonlyArray<number>
  ): Effect.Effect<Reply, MeterDown> => {
    const day = dayAt(instant)
    if (of.key !== undefined) return call(verb, claimsWithoutLimits(of), "", day, own)
    const { accounts, group } = of
    const names = accounts.map((key) => keys.accountOf({ group, key }))
    return callGroup(`${verb}Group`, [...keys.countersOf({ group }, day), ...names], own)
  }

  return Meter.of({
    reserve: (claims, ask) => {
      const own = [whole(ask.tokens), ask.slot ? 1 : 0, leastOf(ask)]
      return requirements.pipe(
        Effect.andThen(callToday("reserve", claims, ask.id, own)),
        Effect.flatMap((reply) => verdictOf(claims, ask, reply, dayAt))
      )
    },

    renew: Effect.fnUntraced(function* (reservation, used, want) {
      const { admittedAt, claims, id } = reservation
      const own = [...heldBy(reservation), whole(used), whole(want)]
      const reply = yield* callOnDay("renew", claims, id, dayAt(admittedAt), own)
      if (reply.tag !== "renewed") return yield* unexpected("renew", reply)
      return { held: reply.held, exhausted: reply.exhausted }
    }),

    settle: Effect.fnUntraced(function* (reservation, used) {
      const { admittedAt, claims, id } = reservation
      const day = dayAt(admittedAt)
      const reply = yield* callOnDay("settle", claims, id, day, [...heldBy(reservation), whole(used)])
      if (reply.tag !== "left") return yield* unexpected("settle", reply)
      return headroomOf(claims, day, reply.left)
    }),

    cancel: ({ claims, id }) => Effect.asVoid(callToday("cancel", claims, id, [])),

    peek: Effect.fnUntraced(function* (claims): Effect.fn.Return<Headroom | Missing, MeterDown> {
      const reply = yield* callToday("peek", claims, "", [])
      if (reply.tag === "missing") return missingOf(claims, dayAt(reply.instant), reply.flags)
      if (reply.tag !== "left") return yield* unexpected("peek", reply)
      return headroomOf(claims, dayAt(reply.left.now), reply.left)
    }),

    load: (owner, counters) => {
      if (counters.length === 0) return Effect.void
      const names = counters.map(({ counter }) => keys.counterOf(owner, counter))
      const values = counters.flatMap(({ counter, tokens }) => [whole(tokens), lifeOf(counter)])
      return Effect.asVoid(callGroup("load", names, values))
    },

    snapshot: Effect.fnUntraced(function* (of, instant) {
      const reply = yield* callAbout("survey", of, instant, [])
      if (reply.tag !== "surveyed") return yield* unexpected("survey", reply)
      return { mark: reply.mark, open: reply.open, totals: reply.totals, lapsed: reply.ids }
    }),

    repair: Effect.fnUntraced(function* (of, instant, mark, totals) {
      const reply = yield* callAbout("repair", of, instant, [mark, ...amountsOf(totals)])
      return reply.tag === "repaired" ? reply.done : yield* unexpected("repair", reply)
    }),

    // It ends with a lease: a store whose clock was set forward has ended all leases, and gets them again.
    hasState: redis
      .send("SET", [reminder, 1, "EX", Math.max(1, Math.ceil(options.leaseS)), "GET"])
      .pipe(Effect.mapBoth({ onFailure: down, onSuccess: (before) => before !== null })),

    // It asks the server anew, so that requests, readiness and `tollgate doctor` agree on a policy that was changed.
    ping: Effect.andThen(check(redis.askServer), Effect.mapError(probeWrites(redis, options.prefix), down))
  })
})

export const layerRedis = (options: Options): Layer.Layer<Meter, never, Redis> =>
  Layer.effect(
    Meter,
    Effect.flatMap(Redis, (redis) => makeRedis(redis, options))
  )
