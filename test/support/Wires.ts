/**
 * The whole gateway with a bad network between it and its stores, and stores of its own to stop, freeze and kill. The
 * test itself sees the stores without that network: its SqlClient and its Meter are on them directly.
 */
import { createHash } from "node:crypto"
import { assert } from "@effect/vitest"
import { Context, Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { Redis } from "ioredis"
import { Registry } from "../../src/admin/Registry.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { accountScripts, type AccountVerb } from "../../src/gates/meter/redis/scripts.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { type FaultProxy, makeFaultProxy } from "./FaultProxy.ts"
import { settledBooks } from "./books.ts"
import { call, type Environment, eventually, hello, layerFake, layerGatewayOn, newKey } from "./Gateway.ts"
import { testUser } from "./servers/PostgresCluster.ts"
import { layerPrivatePostgres, TestCluster } from "./TestPostgres.ts"
import { layerPatientRedis, layerPrivateRedis, TestRedis, TestRedisServer } from "./TestRedis.ts"
import { makeStopwatch } from "./wait.ts"

/** The network to each store. */
export class Wires extends Context.Service<
  Wires,
  { readonly redis: FaultProxy; readonly postgres: FaultProxy }
>()("test/Wires") {}

const layerWires = Layer.effect(
  Wires,
  Effect.gen(function* () {
    const [cluster, server, sql] = [yield* TestCluster, yield* TestRedisServer, yield* SqlClient.SqlClient]
    // What was committed has to survive a kill, as it does in production: test servers are hasty by default.
    yield* Effect.orDie(sql`ALTER DATABASE postgres SET synchronous_commit = 'on'`)
    return {
      redis: yield* makeFaultProxy({ host: "127.0.0.1", port: server.port }),
      postgres: yield* makeFaultProxy({ host: "127.0.0.1", port: cluster.port })
    }
  })
)

/** What the gateway gets for its stores. */
const layerFar = Layer.merge(
  Layer.unwrap(
    Effect.map(Wires, ({ postgres }) =>
      layerPostgres({ url: Redacted.make(`postgres://${testUser}@127.0.0.1:${postgres.port}/postgres`) })
    )
  ),
  Layer.effect(
    TestRedis,
    Effect.map(Wires, ({ redis }) => ({ url: `redis://127.0.0.1:${redis.port}` }))
  )
)

export const leaseS = 3

const layerNearMeter = Layer.unwrap(
  Effect.map(TestRedisServer, ({ url }) =>
    layerRedisMeter({ leaseS }).pipe(Layer.provide(layerPatientRedis(url)))
  )
)

export const layerWired = (env: Environment = {}) =>
  layerGatewayOn({ CONCURRENCY_LEASE_S: String(leaseS), ...env }).pipe(
    Layer.provide(layerFar),
    Layer.provideMerge(Layer.merge(layerWires, layerNearMeter)),
    Layer.provideMerge(Layer.mergeAll(Layer.fresh(layerFake), layerPrivatePostgres(), layerPrivateRedis()))
  )

/** A command for the Redis itself. */
export const tellRedis = Effect.fnUntraced(function* (name: string, ...args: ReadonlyArray<string>) {
  const { url } = yield* TestRedisServer
  return yield* Effect.acquireUseRelease(
    Effect.sync(() => new Redis(url)),
    (client) => Effect.promise(() => client.call(name, ...args)),
    (client) => Effect.sync(() => client.disconnect())
  )
})

/** What a verb of the Meter looks like on the wire. */
export const verb = (name: AccountVerb): string =>
  createHash("sha1").update(accountScripts[name]).digest("hex")

/**
 * What the writing of a request's intent or completion looks like on the wire, by the client's own request id. Only a
 * completion says where its counts are from.
 */
export const writing =
  (what: "intent" | "completion", clientRequestId: string) =>
  (bytes: Buffer): boolean =>
    bytes.includes(clientRequestId) &&
    !/backend|counted|estimated/.test(bytes.toString("latin1")) === (what === "intent")

/** What the keys of these tests may use, and what the fake backend says that "Hello" and its answer are. */
export const granted = { budget: 1000, rpm: 100, tpm: 1_000_000, cost: 10 }

/** A chat, and how long it took. */
export const chat = Effect.fnUntraced(function* (secret: string, stream = false, id = "calm") {
  const began = makeStopwatch()
  const headers = { "x-request-id": id }
  const answer = yield* call("/api/chat", { secret, body: hello({ stream }), headers })
  return { ...answer, ms: began() }
})

const served = (secret: string) =>
  Effect.tap(
    eventually(chat(secret), ({ status }) => status === 200),
    ({ status, text }) => Effect.sync(() => assert.strictEqual(status, 200, text))
  )

/** A key with one slot that has been used once, so that its counters are there. */
export const usedKey = Effect.gen(function* () {
  const { secret, prefix } = yield* newKey({ concurrent: 1, rpm: granted.rpm, tpm: granted.tpm })
  yield* Effect.flatMap(Registry, (registry) => registry.changeKey(prefix, { budgetTotal: granted.budget }))
  yield* served(secret)
  return { secret, prefix }
})

/** The slot is soon free, and what is left is as if only `paid` requests had ever cost tokens, and `counted` had come. */
export const asIf = Effect.fnUntraced(function* (secret: string, paid: number, counted = paid) {
  yield* served(secret)
  const left = (answer: { readonly headers: Headers }) => [
    answer.headers.get("x-budget-tokens-remaining"),
    answer.headers.get("x-ratelimit-remaining-requests"),
    answer.headers.get("x-ratelimit-remaining-tokens")
  ]
  const used = (paid + 1) * granted.cost
  const expected = [granted.budget - used, granted.rpm - counted - 1, granted.tpm - used].map(String)
  const version = call("/api/version", { secret })
  const seen = yield* eventually(version, (answer) => left(answer).join() === expected.join())
  assert.deepStrictEqual(left(seen), expected)
})

export const booksClosed = Effect.gen(function* () {
  const { open, difference } = yield* settledBooks(leaseS + 5)
  assert.deepStrictEqual({ open, difference }, { open: 0, difference: 0 })
})
