/**
 * The Meter in Redis: counters that all replicas share, on Redis's own clock. Each verb is one script
 * (`scripts.ts`) and may be repeated: one whose answer was lost can be sent again. A command
 * that was given up on and runs late all the same does nothing after its `settle` or `cancel`.
 *
 * The calls of one script that are made in one turn of the event loop are sent as one EVALSHA (`calls.ts`). On a cluster each
 * tenant has its own, because all keys of a command must be on one node.
 *
 * Needs Redis 7.0 or later, `noeviction`, and permission for `INFO` beside the data commands; no request is admitted on
 * anything else (`requirements.ts`).
 */
import { randomUUID } from "node:crypto"
import { Clock, Effect, Layer } from "effect"
import { budgetNames, type Headroom, type Period, periods } from "../../../domain/Limits.ts"
import { makeMonotonicMs } from "../../../infra/time.ts"
import { Redis, type RedisFailed } from "../../../infra/Redis.ts"
import { claimNames, headroomOf, leastOf, lifeOf, missingOf, refusal, whole } from "../verdicts.ts"
import { type ReserveRequest, Meter, MeterDown, type Missing, Reserved, type Verdict } from "../Meter.ts"
import {
  type Account,
  type Claims,
  claimsWithoutLimits,
  type Reservation
} from "../../../domain/Reservation.ts"
import { ledgerLagMs, rememberedS } from "../bounds.ts"
import { makeCalls, maxCallsInCommand } from "./calls.ts"
import { checkRequirements } from "./requirements.ts"
import { parseReply, type Reply, type Tag } from "./reply.ts"
import { scripts } from "./scripts.ts"

export interface Options {
  /** seconds a slot and its hold live without being renewed (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** seconds a request id is remembered after its last verb; longer than any late call. `rememberedS` */
  readonly rememberS?: number
  /** how long a request with a reservation may wait in the queue before its intent is written (`QUEUE_MAX_WAIT_MS`). 0 */
  readonly queueMaxWaitMs?: number
  /** in front of every key. `tollgate:` */
  readonly prefix?: string
}

type Verb = keyof typeof scripts
type AccountVerb = Exclude<Verb, "surveyGroup" | "repairGroup" | "load">

/** What a reply means. */
type Read<A> = (reply: Reply) => Effect.Effect<A, MeterDown>

/** Each is there: `parseReply` has counted them. */
const at = (numbers: ReadonlyArray<number>, i: number): number => numbers[i] ?? Number.NaN

const nonsense = (verb: Verb, reply: Reply) =>
  new MeterDown({ cause: `unexpected ${reply.tag} from ${verb}` })

/** `host` is the clock of this machine; the scripts go by `clock`, or by Redis's own. */
const make = (
  redis: Redis["Service"],
  options: Options,
  clock: Effect.Effect<number> | undefined,
  host: Clock.Clock,
  nowMs: () => number
): Meter["Service"] => {
  /** -1 lets the scripts ask Redis for the time. */
  const timed = <A, E>(verb: (now: number) => Effect.Effect<A, E>): Effect.Effect<A, E> =>
    clock === undefined ? verb(-1) : Effect.flatMap(clock, verb)
  const lives = `${options.leaseS * 1000},${(options.rememberS ?? rememberedS(options.leaseS)) * 1000},${ledgerLagMs + (options.queueMaxWaitMs ?? 0)}`
  const prefix = options.prefix ?? "tollgate:"
  const { callOf, countersOf, encode, nameOf } = makeCalls(prefix, lives, redis.runId)
  const gather = (verb: AccountVerb, most = maxCallsInCommand) =>
    redis.gather(scripts[verb], { encode, most })
  const ofAccounts = {
    reserve: gather("reserve"),
    renew: gather("renew"),
    settle: gather("settle"),
    renewSlot: gather("renewSlot"),
    freeSlot: gather("freeSlot"),
    cancel: gather("cancel"),
    peek: gather("peek"),
    survey: gather("survey", 1),
    repair: gather("repair", 1)
  } satisfies Record<AccountVerb, unknown>
  const ofGroups = {
    surveyGroup: redis.script(scripts.surveyGroup),
    repairGroup: redis.script(scripts.repairGroup),
    load: redis.script(scripts.load)
  } satisfies Record<Exclude<Verb, AccountVerb>, unknown>
  /** Of this process alone: each has to find out for itself. */
  const reminder = `${prefix}reminder:${randomUUID()}`

  const keysOfGroup = (group: string, keys: ReadonlyArray<string>, instant: number): Array<string> => [
    ...countersOf(nameOf({ group }), instant),
    ...keys.map((key) => `${nameOf({ group, key })}:windows`)
  ]

  const down = ({ cause }: { readonly cause: unknown }) => new MeterDown({ cause })

  /** What the reply of a script means. */
  const meaningOf = <A>(verb: Verb, value: unknown, read: Read<A>): Effect.Effect<A, MeterDown> => {
    const reply = parseReply(value)
    return reply === undefined
      ? new MeterDown({ cause: `no answer of ${verb}: ${String(value).slice(0, 200)}` })
      : read(reply)
  }

  const failure = (error: RedisFailed) => Effect.fail(down(error))

  const send = <A>(
    verb: AccountVerb,
    claims: Claims,
    id: string,
    instant: number,
    now: number,
    own: ReadonlyArray<number>,
    read: Read<A>
  ): Effect.Effect<A, MeterDown> =>
    ofAccounts[verb](claims.account.group, callOf(claims, id, instant, now, own), {
      reply: (line) => meaningOf(verb, line, read),
      failure
    })

  const sendToGroup = <A>(
    verb: keyof typeof ofGroups,
    keys: ReadonlyArray<string>,
    numbers: ReadonlyArray<number>,
    read: Read<A>
  ): Effect.Effect<A, MeterDown> =>
    Effect.matchEffect(ofGroups[verb](keys, [JSON.stringify(numbers), redis.runId]), {
      onSuccess: (value) => meaningOf(verb, value, read),
      onFailure: failure
    })

  /** Runs `verb` with the counters of `instant`; when Redis names another instant, with those. */
  const run = <A>(
    verb: AccountVerb,
    claims: Claims,
    id: string,
    instant: number,
    own: ReadonlyArray<number>,
    read: Read<A>,
    attempts = 3
  ): Effect.Effect<A, MeterDown> =>
    timed((now) =>
      send(verb, claims, id, instant, now, own, (reply): Effect.Effect<A, MeterDown> => {
        if (reply.tag !== "stale") return read(reply)
        return attempts > 1
          ? run(verb, claims, id, at(reply.numbers, 0), own, read, attempts - 1)
          : new MeterDown({ cause: "the time of the store is unknown" })
      })
    )

  /** As `run`, for verbs of the present: the host's clock, read now, guesses the day, and Redis corrects it. */
  const runNow = <A>(
    verb: AccountVerb,
    claims: Claims,
    id: string,
    own: ReadonlyArray<number>,
    read: Read<A>
  ) => run(verb, claims, id, host.currentTimeMillisUnsafe(), own, read)

  const whenFit = checkRequirements(redis, nowMs)

  /** For verbs that are about an account's counters of a given instant and about no request. */
  const once = <A>(
    verb: AccountVerb,
    account: Account,
    instant: number,
    own: ReadonlyArray<number>,
    read: Read<A>
  ) => {
    const claims = claimsWithoutLimits(account)
    return timed((now) => send(verb, claims, "", instant, now, own, read))
  }

  /** The reply that `tag` announces, and no other. */
  const only =
    <A>(verb: Verb, tag: Tag, read: (numbers: Reply["numbers"], ids: Reply["ids"]) => A): Read<A> =>
    (reply) =>
      reply.tag === tag ? Effect.succeed(read(reply.numbers, reply.ids)) : nonsense(verb, reply)

  const grip = (reservation: Reservation): Array<number> => [
    reservation.admittedAt,
    whole(reservation.held),
    whole(reservation.available),
    reservation.slot ? 1 : 0
  ]

  const missingIn = (numbers: ReadonlyArray<number>) =>
    missingOf(
      at(numbers, 0),
      numbers.slice(1).map((flag) => flag === 1)
    )

  const reservationOf = (claims: Claims, ask: ReserveRequest, n: ReadonlyArray<number>): Reservation => ({
    id: ask.id,
    claims,
    held: at(n, 1),
    available: at(n, 2),
    admittedAt: at(n, 0),
    slot: at(n, 3) === 1
  })

  /** What is left, as the numbers from `from` on say; the periods are those of `instant`, or of the store's time. */
  const left = (claims: Claims, numbers: ReadonlyArray<number>, from: number, instant?: number) => {
    const afterBudgets = from + 2 + budgetNames.length
    const now = at(numbers, afterBudgets)
    return headroomOf(claims, instant ?? now, {
      requests: at(numbers, from),
      tokens: at(numbers, from + 1),
      budgets: numbers.slice(from + 2, afterBudgets),
      now,
      requestsResetMs: at(numbers, afterBudgets + 1),
      tokensResetMs: at(numbers, afterBudgets + 2)
    })
  }

  const verdictOf = (
    claims: Claims,
    ask: ReserveRequest,
    reply: Reply
  ): Effect.Effect<Verdict, MeterDown> => {
    const { tag, numbers: n } = reply
    switch (tag) {
      case "missing":
        return Effect.succeed(missingIn(n))
      case "ended":
        return new MeterDown({ cause: `request ${ask.id} is over` })
      case "refused": {
        const name = claimNames[at(n, 0) - 1]
        return name === undefined
          ? nonsense("reserve", reply)
          : Effect.succeed(refusal(name, at(n, 1), at(n, 2), at(n, 3), left(claims, n, 4)))
      }
      case "reserved":
        return Effect.succeed(
          new Reserved({ reservation: reservationOf(claims, ask, n), headroom: left(claims, n, 4, at(n, 0)) })
        )
      default:
        return nonsense("reserve", reply)
    }
  }

  const surveyOf = (n: ReadonlyArray<number>) => {
    const totals: { -readonly [P in Period]?: number } = {}
    periods.forEach((period, i) => {
      if (at(n, 2 + i) >= 0) totals[period] = at(n, 2 + i)
    })
    return { mark: at(n, 0), open: at(n, 1), totals }
  }

  /** -1: not known */
  const amountsOf = (totals: { readonly [P in Period]?: number }) =>
    periods.map((period) => (totals[period] === undefined ? -1 : whole(totals[period])))

  const aboutSlot = (verb: "renewSlot" | "freeSlot", { admittedAt, claims, id }: Reservation) =>
    run(
      verb,
      claims,
      id,
      admittedAt,
      [],
      only(verb, "done", () => undefined)
    )

  return Meter.of({
    reserve: (claims, ask) => {
      const more = [whole(ask.tokens), ask.slot ? 1 : 0, leastOf(ask)]
      return whenFit(() => runNow("reserve", claims, ask.id, more, (reply) => verdictOf(claims, ask, reply)))
    },

    renew: (reservation, used, want) =>
      run(
        "renew",
        reservation.claims,
        reservation.id,
        reservation.admittedAt,
        [...grip(reservation), whole(used), whole(want)],
        only("renew", "renewed", (n) => ({ held: at(n, 0), exhausted: at(n, 1) === 1 }))
      ),

    settle: (reservation, used, options) =>
      run(
        "settle",
        reservation.claims,
        reservation.id,
        reservation.admittedAt,
        [...grip(reservation), whole(used), options?.keepSlot === true ? 1 : 0],
        only("settle", "left", (n) => left(reservation.claims, n, 0, reservation.admittedAt))
      ),

    renewSlot: (reservation) => aboutSlot("renewSlot", reservation),

    freeSlot: (reservation) => aboutSlot("freeSlot", reservation),

    cancel: ({ claims, id }) =>
      Effect.suspend(() =>
        runNow(
          "cancel",
          claims,
          id,
          [],
          only("cancel", "done", () => undefined)
        )
      ),

    peek: (claims) =>
      Effect.suspend(() =>
        runNow("peek", claims, "", [], (reply): Effect.Effect<Headroom | Missing, MeterDown> => {
          if (reply.tag === "missing") return Effect.succeed(missingIn(reply.numbers))
          return reply.tag === "left"
            ? Effect.succeed(left(claims, reply.numbers, 0))
            : nonsense("peek", reply)
        })
      ),

    load: (owner, counters) => {
      if (counters.length === 0) return Effect.void
      const keys = counters.map(({ counter }) => `${nameOf(owner)}:tokens:${counter}`)
      const values = counters.flatMap(({ counter, tokens }) => [whole(tokens), lifeOf(counter)])
      const done = only("load", "done", () => undefined)
      return timed((now) => sendToGroup("load", keys, [now, ...values], done))
    },

    snapshot: (account, instant) =>
      once(
        "survey",
        account,
        instant,
        [],
        only("survey", "surveyed", (n, lapsed) => ({ ...surveyOf(n), lapsed }))
      ),

    repair: (account, instant, mark, totals) => {
      const repaired = only("repair", "repaired", (n) => at(n, 0) === 1)
      return once("repair", account, instant, [mark, ...amountsOf(totals)], repaired)
    },

    snapshotGroup: (group, keys, instant) =>
      timed((now) =>
        sendToGroup(
          "surveyGroup",
          keysOfGroup(group, keys, instant),
          [now],
          only("surveyGroup", "surveyed", surveyOf)
        )
      ),

    repairGroup: (group, keys, instant, mark, totals) =>
      timed((now) =>
        sendToGroup(
          "repairGroup",
          keysOfGroup(group, keys, instant),
          [now, mark, ...amountsOf(totals)],
          only("repairGroup", "repaired", (n) => at(n, 0) === 1)
        )
      ),

    hasState: redis
      // It ends with a lease: a store whose clock was set forward has ended all leases, and gets them again.
      .send("SET", [reminder, 1, "EX", Math.max(1, Math.ceil(options.leaseS)), "GET"])
      .pipe(Effect.mapBoth({ onFailure: down, onSuccess: (before) => before !== null })),

    ping: whenFit(() => redis.send("PING", []).pipe(Effect.mapError(down), Effect.asVoid))
  })
}

/** Tests give the scripts the time (epoch ms) of a `clock` that they can move; else the time of Redis counts. */
export const makeRedis = (redis: Redis["Service"], options: Options, clock?: Effect.Effect<number>) =>
  Effect.map(Effect.all([Clock.Clock, makeMonotonicMs]), ([host, nowMs]) =>
    make(redis, options, clock, host, nowMs)
  )

export const layerRedis = (options: Options): Layer.Layer<Meter, never, Redis> =>
  Layer.effect(
    Meter,
    Effect.flatMap(Redis, (redis) => makeRedis(redis, options))
  )
