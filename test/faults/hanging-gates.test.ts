/**
 * Each gate hanging in turn on the real stores: a refusal within its limit, no call to the backend, and service again
 * when it lets go. A list of models is no gate that can hang on a request: it runs out, and denies.
 */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { SqlClient } from "effect/sql"
import { type Gate, gates } from "../../src/domain/Errors.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { call, eventually, Fake, hello, layerFake, layerGatewayOn, newKey } from "../support/Gateway.ts"
import { layerTestPostgres, TestDatabase } from "../support/TestPostgres.ts"
import { layerPrivateRedis, TestRedisServer } from "../support/TestRedis.ts"
import { makeStopwatch, atMost } from "../support/wait.ts"

/** Whoever asks for `table` waits until the scope ends. */
const lock = Effect.fnUntraced(function* (table: string) {
  const { socket } = yield* TestDatabase
  const services = yield* Layer.build(
    layerPostgres({ url: socket, maxConnections: 1, statementTimeoutMs: 0 })
  )
  const connection = yield* Context.get(services, SqlClient.SqlClient).reserve
  yield* connection.executeRaw("BEGIN", [])
  yield* Effect.addFinalizer(() => Effect.ignore(connection.executeRaw("ROLLBACK", [])))
  yield* connection.executeRaw(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`, [])
})

interface Hang {
  readonly hang: Effect.Effect<void, unknown, TestDatabase | TestRedisServer | Fake | Scope.Scope>
  readonly status: 503 | 403
  /** the longest a refusal may take, with room for a busy machine */
  readonly withinMs: number
}

const matrix = {
  KeyStore: { hang: lock("api_keys"), status: 503, withinMs: 2000 },
  Discovery: {
    hang: Effect.acquireRelease(
      Effect.map(Fake, (fake) => fake.onLookup({ does: "hang" })),
      () => Effect.map(Fake, (fake) => fake.onLookup(undefined))
    ),
    status: 403,
    withinMs: 1000
  },
  Limiter: {
    hang: Effect.acquireRelease(
      Effect.flatMap(TestRedisServer, (server) => server.pause),
      () => Effect.flatMap(TestRedisServer, (server) => server.resume)
    ),
    status: 503,
    withinMs: 2000
  },
  Budget: { hang: lock("ledger"), status: 503, withinMs: 4000 },
  // The places are in the same store as the counters: the Limiter answers first.
  Queue: {
    hang: Effect.acquireRelease(
      Effect.flatMap(TestRedisServer, (server) => server.pause),
      () => Effect.flatMap(TestRedisServer, (server) => server.resume)
    ),
    status: 503,
    withinMs: 2000
  },
  Audit: { hang: lock("intents"), status: 503, withinMs: 2500 }
} as const satisfies Record<Gate, Hang>

const layerWorld = layerGatewayOn({
  MODEL_DISCOVERY_REFRESH_S: "1",
  MODEL_DISCOVERY_CACHE_TTL_S: "2",
  KEY_FRESHNESS_MS: "300",
  BACKEND_MAX_CONCURRENT: "100"
}).pipe(
  Layer.provideMerge(Layer.fresh(layerFake)),
  Layer.provideMerge(layerTestPostgres()),
  Layer.provideMerge(layerPrivateRedis())
)

layer(layerWorld, { excludeTestServices: true })("each gate hanging in turn", (it) => {
  const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

  for (const gate of gates) {
    const { hang, status, withinMs }: Hang = matrix[gate]
    it.effect(
      `when ${gate} hangs, then the answer is ${status} within ${withinMs} ms without a backend call, and works again afterwards`,
      () =>
        Effect.gen(function* () {
          const fake = yield* Fake
          const registry = yield* Registry
          const warm = yield* newKey()
          const { secret, prefix } = yield* newKey()
          // Its total is in nobody's memory yet, so the Budget has to ask the ledger.
          yield* registry.setBudgets(prefix, { total: 1_000_000 })
          yield* eventually(chat(warm.secret), (answer) => answer.status === 200)
          const asked = yield* Effect.scoped(
            Effect.gen(function* () {
              yield* hang
              const first = yield* eventually(chat(secret), (answer) => answer.status === status)
              assert.strictEqual(first.status, status, first.text)
              const asked = fake.requests.length
              const startedAt = makeStopwatch()
              const answers = yield* Effect.forEach(Array.from({ length: 5 }), () => chat(secret), {
                concurrency: "unbounded"
              })
              const ms = startedAt()
              assert.deepStrictEqual(
                answers.map((answer) => answer.status),
                answers.map(() => status)
              )
              assert.isBelow(ms, atMost(withinMs))
              assert.strictEqual(fake.requests.length, asked)
              return asked
            })
          )
          const back = yield* eventually(chat(secret), (answer) => answer.status === 200)
          assert.strictEqual(back.status, 200, back.text)
          assert.strictEqual(fake.requests.length, asked + 1)
        })
    )
  }
})
