/**
 * Ways a store can fail in the middle of traffic; frozen ones are in `stores.test.ts`, and `npm run soak` has more. Whatever it was: whoever is refused is refused in time, nobody
 * gets what the ledger would have refused, it passes within three seconds, and afterwards log, ledger and counters
 * agree and nothing is held.
 */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../src/admin/Registry.ts"
import { settledBooks } from "../support/books.ts"
import { fake } from "../support/FakeBackend.ts"
import { call, eventually, Fake, hello, newKey } from "../support/Gateway.ts"
import { TestCluster } from "../support/TestPostgres.ts"
import { TestRedisServer } from "../support/TestRedis.ts"
import { startTraffic } from "../support/Traffic.ts"
import { layerWired, leaseS, tellRedis, Wires } from "../support/Wires.ts"
import { atMost } from "../support/wait.ts"
import { expectRepairs } from "../support/watch.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/**
 * One token, which is held however little is left: no answer is cut, each costs the same, and the budget, which is a
 * multiple of that, is spent to the token and no further.
 */
const answer = {
  does: "stream",
  lines: [fake.chat("Hello"), fake.done("chat", { prompt_eval_count: 9, eval_count: 1 })],
  together: true
} as const
const cost = 10

type Stores = Wires | TestCluster | TestRedisServer

interface Fault {
  readonly name: string
  readonly begins: Effect.Effect<unknown, unknown, Stores | SqlClient.SqlClient>
  readonly ends?: Effect.Effect<unknown, unknown, Stores>
  readonly lastsMs?: number
  /** Counters are loaded again while requests run, and may count a hold twice until they are repaired: never too little. */
  readonly empties?: true
}

const redis = Effect.map(Wires, (wires) => wires.redis)
const postgres = Effect.map(Wires, (wires) => wires.postgres)

const faults: ReadonlyArray<Fault> = [
  {
    name: "Redis is killed and comes back empty",
    begins: Effect.flatMap(TestRedisServer, ({ kill }) => kill),
    ends: Effect.flatMap(TestRedisServer, ({ start }) => start),
    empties: true
  },
  { name: "Redis forgets everything", begins: tellRedis("FLUSHALL"), lastsMs: 200, empties: true },
  {
    name: "all connections to Redis are reset and new ones refused",
    begins: Effect.flatMap(redis, (wire) => Effect.andThen(wire.refuse, wire.reset))
  },
  {
    name: "Postgres is killed",
    begins: Effect.flatMap(TestCluster, ({ kill }) => kill),
    ends: Effect.flatMap(TestCluster, ({ start }) => start)
  },
  {
    name: "Postgres terminates every connection, again and again",
    begins: sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()`.pipe(
      Effect.delay("150 millis"),
      Effect.repeat({ times: 8 })
    )
  },
  {
    // Further away than the wait for an intent, nearer than the wait for a completion.
    name: "Postgres is 2 s away",
    begins: Effect.flatMap(postgres, (wire) => wire.latency(1000)),
    lastsMs: 3000
  },
  {
    name: "all connections to Postgres are reset and new ones refused",
    begins: Effect.flatMap(postgres, (wire) => Effect.andThen(wire.refuse, wire.reset))
  }
]

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

const spent = Effect.fnUntraced(function* (prefix: string) {
  const [row] = yield* sql<{ readonly n: number }>`
    SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS n FROM ledger JOIN api_keys k ON k.id = key_id
    WHERE k.prefix = ${prefix}`
  return row?.n ?? 0
})

inWorld(layerWired())("in the middle of traffic", (test) => {
  for (const { name, begins, ends, lastsMs = 1500, empties } of faults) {
    test(`when ${name}, then requests get an answer or a 503, and the books are exact`, function* () {
      const [registry, wires] = [yield* Registry, yield* Wires]
      if (empties) yield* expectRepairs
      ;(yield* Fake).always(answer)
      const free = yield* newKey()
      const budget = 300
      const tight = yield* newKey()
      yield* registry.changeKey(free.prefix, { budgetTotal: 1_000_000 })
      yield* registry.changeKey(tight.prefix, { budgetDaily: budget, budgetTotal: budget })
      for (const { secret } of [free, tight]) {
        assert.strictEqual((yield* eventually(chat(secret), ({ status }) => status === 200)).status, 200)
      }
      const traffic = yield* startTraffic([free.secret, tight.secret], 6)
      yield* eventually(
        Effect.sync(() => traffic.outcomes.length),
        (answers) => answers > 6
      )
      const began = performance.now()
      yield* begins
      yield* Effect.sleep(lastsMs)
      if (ends !== undefined) yield* ends
      yield* wires.redis.heal
      yield* wires.postgres.heal
      const back = yield* eventually(chat(free.secret), ({ status }) => status === 200)
      assert.strictEqual(back.status, 200, back.text)
      yield* Effect.sleep("300 millis")
      yield* traffic.stop

      const all = traffic.outcomes
      const odd = all.filter(
        ({ status, type }) => !(status === 200 || status === 503 || type === "budget_exceeded")
      )
      assert.deepStrictEqual(odd, [])
      // A request that was answered already waits longer for its row: a failover shall not cost it its answer.
      const refused = all.filter((outcome) => outcome.status === 503 && outcome.began > began)
      const slowest = Math.max(0, ...refused.map(({ ms }) => ms))
      assert.isBelow(slowest, atMost(2500))
      const end = yield* settledBooks(leaseS + 5)
      assert.deepStrictEqual({ open: end.open, difference: end.difference }, { open: 0, difference: 0 })
      assert.isAtMost(yield* spent(tight.prefix), budget)
      assert.isAtLeast(
        (yield* spent(tight.prefix)) + (yield* spent(free.prefix)),
        cost * all.filter(({ status }) => status === 200).length
      )
    })
  }
})
