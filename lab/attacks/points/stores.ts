/** Point 14: stores that are slow or frozen while clients leave. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Fiber, Schema } from "effect"
import { settledBooks } from "../../../test/support/books.ts"
import { Arena, mostMiB, newKeys } from "../Arena.ts"
import type { Rows } from "../figures.ts"
import type { Key, Plan } from "../processes.ts"
import type { Assault } from "./Assault.ts"

const Counts = Schema.Tuple([
  Schema.Struct({ aborted: Schema.Finite, admitted: Schema.Finite, rows: Schema.Finite })
])
const decodeCounts = Schema.decodeUnknownEffect(Counts)

/** Rows in the log of these keys. */
const rowsOf = Effect.fnUntraced(function* (keys: ReadonlyArray<Key>) {
  const pg = yield* PgClient.PgClient
  const prefixes = keys.map(({ prefix }) => prefix)
  const [counts] = yield* Effect.orDie(
    decodeCounts(
      yield* pg`SELECT count(*) FILTER (WHERE error_type = 'aborted')::float8 AS aborted,
        count(admitted_at)::float8 AS admitted, count(*)::float8 AS rows
        FROM audit_log WHERE key_prefix = ANY(${prefixes})`
    )
  )
  return counts
})

type Store = "postgres" | "redis"

/** Stores that do not answer for `stalledMs` again and again, and work for `worksMs` in between. */
interface Stalls {
  readonly stores: ReadonlyArray<Store>
  readonly stalledMs: number
  readonly worksMs: number
}

/** Stalls the stores until the fiber is interrupted. They work afterwards. */
const stall = ({ stalledMs, stores, worksMs }: Stalls) =>
  Effect.gen(function* () {
    const arena = yield* Arena
    const each = (act: "pause" | "resume") => Effect.forEach(stores, (store) => arena[store][act])
    return yield* Effect.forever(
      Effect.sleep(worksMs).pipe(
        Effect.andThen(each("pause")),
        Effect.andThen(Effect.sleep(stalledMs)),
        Effect.andThen(each("resume"))
      )
    ).pipe(Effect.ensuring(each("resume")))
  })

interface Leaving {
  readonly name: string
  readonly stalls: Stalls
  readonly plan: Plan
  readonly limits?: { readonly rpm?: number; readonly tpm?: number; readonly concurrent?: number }
}

/** Clients that leave, or ask again and again, while stores do not answer. */
const leaving = ({ limits = {}, name, plan, stalls: wanted }: Leaving): Assault => ({
  point: 14,
  name,
  run: Effect.fnUntraced(function* (row: Rows) {
    // Of 16 tenants, so that none has used up its free work soon.
    const keys = (yield* Effect.forEach(Array.from({ length: 16 }), () =>
      newKeys(1, limits, { budgetTotal: 1_000_000_000 })
    )).flat()
    const bystanders = yield* newKeys(8)
    const victim = yield* (yield* Arena).victim
    // Everybody has been admitted once, so that the next admissions are expected.
    yield* victim.attack({ attack: "volley", count: 16, seconds: 1 }, keys)
    const attacking = yield* victim.startAttack({ seconds: 12, ...plan }, keys)
    const changing = yield* Effect.forkChild(stall(wanted))
    const met = yield* Fiber.join(attacking)
    yield* Fiber.interrupt(changing)
    const state = yield* settledBooks(90)
    const after = yield* victim.attack({ attack: "volley", count: 8, seconds: 3 }, bystanders)
    const settled = yield* settledBooks(10)
    const { aborted, admitted, rows } = yield* rowsOf(keys)
    return [
      row.atMost("intents, slots and holds left", state.open, 0),
      row.atMost("tokens between audit, ledger, counters", settled.difference, 0),
      row.atMost("requests booked as aborted", aborted, 0),
      row.atMost("not served afterwards, of 8", 8 - (after["200"] ?? 0), 0),
      row.atMost("memory at most, MiB", victim.peakMiB(), mostMiB),
      row.noted("  seconds until nothing was open", state.seconds),
      row.noted("  rows", rows),
      row.noted("  admitted", admitted),
      ...row.met(met)
    ]
  })
})

const slow = { stalledMs: 60, worksMs: 30 }
const frozen = { stalledMs: 2500, worksMs: 700 }
const leavers: Plan = { attack: "leave early", count: 24, rate: 20 }
const allLeaving: ReadonlyArray<Leaving> = [
  ...(["redis", "postgres"] as const).flatMap((store): ReadonlyArray<Leaving> => [
    { name: `${store} slow, left after 20 ms`, stalls: { stores: [store], ...slow }, plan: leavers },
    { name: `${store} frozen, left after 20 ms`, stalls: { stores: [store], ...frozen }, plan: leavers },
    {
      name: `${store} frozen, left after 700 ms`,
      stalls: { stores: [store], ...frozen },
      plan: { ...leavers, rate: 700 }
    },
    {
      name: `${store} slow, more than the slots`,
      stalls: { stores: [store], ...slow },
      plan: { attack: "hammer", count: 100 },
      limits: { concurrent: 2 }
    },
    {
      name: `${store} frozen for a second, keys at their rpm`,
      stalls: { stores: [store], stalledMs: 1000, worksMs: 1000 },
      plan: { attack: "hammer", count: 100 },
      limits: { rpm: 20 }
    }
  ]),
  {
    name: "both slow, left after 20 ms",
    stalls: { stores: ["redis", "postgres"], ...slow },
    plan: leavers
  }
]

export const stores: ReadonlyArray<Assault> = allLeaving.map(leaving)
