import * as argon2 from "@node-rs/argon2"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Result } from "effect"
import { SqlClient } from "effect/sql"
import { mintKey, prefixOf } from "../../src/domain/Key.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { layerPostgres as layerKeyStore } from "../../src/gates/keys/postgres.ts"
import { ReadOnly } from "../../src/infra/Postgres.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import { dropChecks, readColumns, withOddValues } from "../support/oddRows.ts"
import { TestCluster } from "../support/TestPostgres.ts"
import { becomes, outcomeOf, suite, World } from "./KeyStore.ts"
import { layerLiveWorld } from "./keyStoreWorld.ts"
import { atMost, eventually, makeStopwatch } from "../support/wait.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

suite("Postgres", layerLiveWorld())

/** Ends whoever has said LISTEN last, as an administrator or a proxy would. */
const killListeners = sql`
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE query ILIKE 'listen%' AND pid <> pg_backend_pid()`

const test = testWith(it.live, layerLiveWorld())

testWith(it.live, layerLiveWorld({ freshnessMs: 180_000 }))(
  "when the listener was cut off, then it listens again and the changes of the meantime are known",
  function* () {
    const { addKey } = yield* World
    const [first, second] = [yield* addKey(), yield* addKey()]
    assert.deepStrictEqual(yield* Effect.forEach([first, second], outcomeOf), ["ok", "ok"])
    assert.isNotEmpty(yield* killListeners)
    yield* sql`INSERT INTO revocations (key_prefix) VALUES (${prefixOf(first)})`
    yield* becomes(outcomeOf(first), "Unauthorized", 5000)
    yield* sql`INSERT INTO revocations (key_prefix) VALUES (${prefixOf(second)})`
    yield* becomes(outcomeOf(second), "Unauthorized", 2000)
    // No poll would have told within a minute.
  }
)

testWith(it.live, layerLiveWorld({ freshnessMs: 60_000 }))(
  "when notifications arrive, then a revocation is in force long before the poll",
  function* () {
    const { addKey } = yield* World
    const secret = yield* addKey()
    assert.strictEqual(yield* outcomeOf(secret), "ok")
    yield* sql`INSERT INTO revocations (key_prefix) VALUES (${prefixOf(secret)})`
    const elapsedMs = yield* becomes(outcomeOf(secret), "Unauthorized", 2000)
    yield* Effect.logInfo(`with notifications: ${Math.round(elapsedMs)} ms`)
  }
)

test("when the database is frozen, then the answer is 503 within about two seconds though the cache is warm", function* () {
  const { addKey } = yield* World
  const cluster = yield* TestCluster
  const secret = yield* addKey()
  assert.strictEqual(yield* outcomeOf(secret), "ok")
  yield* cluster.pause
  const elapsedMs = yield* becomes(outcomeOf(secret), "Unavailable", 2500).pipe(
    Effect.ensuring(cluster.resume)
  )
  assert.isBelow(elapsedMs, atMost(2100))
  yield* becomes(outcomeOf(secret), "ok", 10_000)
})

testWith(it.live, layerLiveWorld({ secretCheck: { maxWaitMs: 20_000 } }))(
  "when 64 keys are used for the first time at once, then each finds a place in the queue",
  function* () {
    const { addKey } = yield* World
    const secrets = yield* Effect.forEach(Array.from({ length: 64 }), () => addKey())
    const answers = yield* Effect.forEach(secrets, outcomeOf, { concurrency: "unbounded" })
    assert.deepStrictEqual(
      answers,
      answers.map(() => "ok")
    )
    // How long they may wait is another matter: a busy machine takes its time for 64 verifies.
  }
)

test("when wrong secrets and unknown prefixes come as a flood, then keys in use are not slowed down", function* () {
  const { addKey } = yield* World
  const [victim, bait] = [yield* addKey(), yield* addKey()]
  assert.strictEqual(yield* outcomeOf(victim), "ok")
  yield* Effect.forkScoped(
    Effect.forever(
      Effect.forEach(
        Array.from({ length: 20 }),
        (_, n) => outcomeOf(n % 2 === 0 ? prefixOf(bait) + mintKey("tg_").slice(-32) : mintKey("tg_")),
        { concurrency: "unbounded", discard: true }
      ).pipe(Effect.andThen(Effect.sleep("20 millis")))
    )
  )
  let slowestMs = 0
  for (let n = 0; n < 100; n += 1) {
    const started = makeStopwatch()
    assert.strictEqual(yield* outcomeOf(victim), "ok")
    slowestMs = Math.max(slowestMs, started())
    yield* Effect.sleep("10 millis")
  }
  assert.isBelow(slowestMs, atMost(500))
})

test("when a hash is replaced, then results for the old one no longer count", function* () {
  const { addKey } = yield* World
  const [first, second] = [yield* addKey(), yield* addKey()]
  assert.strictEqual(yield* outcomeOf(first), "ok")
  yield* sql`
        UPDATE api_keys SET hash = (SELECT hash FROM api_keys WHERE prefix = ${prefixOf(second)})
        WHERE prefix = ${prefixOf(first)}`
  yield* becomes(outcomeOf(first), "Unauthorized")
})

test("when two gateways share a database, then both refuse a revoked key within about a second", function* () {
  const { addKey, revoke } = yield* World
  const other = yield* Layer.build(Layer.fresh(layerKeyStore({ namespace: "tg_" })))
  const secret = yield* addKey()
  const there = outcomeOf(secret).pipe(Effect.provide(other))
  assert.deepStrictEqual([yield* outcomeOf(secret), yield* there], ["ok", "ok"])
  yield* revoke(prefixOf(secret))
  yield* Effect.all([becomes(outcomeOf(secret), "Unauthorized"), becomes(there, "Unauthorized")], {
    concurrency: 2
  })
  assert.isDefined(yield* KeyStore)
})

testWith(it.live)(
  "when a key is dead, then its right secret is no more compared with its hash than a wrong one",
  function* () {
    const compared: Array<string> = []
    const verify = (hash: string, secret: string) => {
      compared.push(hash)
      return Effect.promise(() => argon2.verify(hash, secret))
    }
    yield* Effect.gen(function* () {
      const { addKey, expire, revoke, setKeyEnabled, setTenantEnabled } = yield* World
      const ends = [
        revoke,
        expire,
        (prefix: string) => setKeyEnabled(prefix, false),
        (prefix: string) => setTenantEnabled(prefix, false)
      ]
      for (const end of ends) {
        const secret = yield* addKey()
        const prefix = prefixOf(secret)
        const [row] = yield* sql<{ hash: string }>`SELECT hash FROM api_keys WHERE prefix = ${prefix}`
        yield* end(prefix)
        // The right secret twice: nothing is remembered of it either.
        for (const asked of [secret, prefix + mintKey("tg_").slice(-32), secret])
          assert.strictEqual(yield* outcomeOf(asked), "Unauthorized")
        assert.notInclude(compared, row?.hash)
      }
      const alive = yield* addKey()
      assert.strictEqual(yield* outcomeOf(alive), "ok")
    }).pipe(Effect.provide(layerLiveWorld({ secretCheck: { verify } })))
    assert.isNotEmpty(compared)
  }
)

it.live(
  "when any column of a key or its tenant is odd, then that key alone is refused, and the log names the row",
  () => {
    const said: Array<string> = []
    return Effect.gen(function* () {
      const { addKey } = yield* World
      const [odd, other] = [yield* addKey(), yield* addKey()]
      const [tenant] = yield* sql<{ name: string }>`
      SELECT t.name FROM tenants t JOIN api_keys k ON k.tenant_id = t.id WHERE k.prefix = ${prefixOf(odd)}`
      yield* dropChecks
      for (const [table, column] of readColumns) {
        if (["created_at", "expires_at", "status"].includes(column)) continue
        said.length = 0
        const outcomes = yield* withOddValues(
          table,
          column,
          table === "tenants" ? `name = '${tenant?.name}'` : `prefix = '${prefixOf(odd)}'`,
          Effect.all([outcomeOf(odd), outcomeOf(other)])
        )
        const ofOdd = outcomes.map(([outcome]) => outcome)
        assert.include(ofOdd, "Unauthorized", `${table}.${column}`)
        assert.notInclude(ofOdd, "Unavailable", `${table}.${column}`)
        assert.isTrue(
          outcomes.every(([, outcome]) => outcome === "ok"),
          `another key, ${table}.${column}`
        )
        const row = table === "tenants" ? `tenant ${tenant?.name}` : `key ${prefixOf(odd)}`
        assert.isTrue(
          said.some((line) => line.includes(`"row":"${row}"`) && line.includes(column)),
          `${table}.${column}: ${said.join("\n")}`
        )
      }
      assert.strictEqual(yield* outcomeOf(odd), "ok")
    }).pipe(
      // No state is fresh, so each request sees the row as it is.
      Effect.provide(
        Layer.provideMerge(
          layerLiveWorld({ freshnessMs: 0 }),
          Logger.layer([Logger.make((options) => void said.push(jsonLine.log(options)))])
        )
      )
    )
  }
)

testWith(it.live)("when a key dies while its secret is compared, then it is refused", function* () {
  let compared = Promise.withResolvers<void>()
  let goOn = Promise.withResolvers<boolean>()
  const verify = () => {
    compared.resolve()
    return Effect.promise(() => goOn.promise)
  }
  yield* Effect.gen(function* () {
    const { addKey, expire, revoke, setKeyEnabled, setTenantEnabled } = yield* World
    const ends: ReadonlyArray<(prefix: string) => Effect.Effect<unknown, unknown, SqlClient.SqlClient>> = [
      revoke,
      expire,
      (prefix) => setKeyEnabled(prefix, false),
      (prefix) => setTenantEnabled(prefix, false),
      (prefix) => sql`UPDATE api_keys SET hash = hash || '0' WHERE prefix = ${prefix}`
    ]
    for (const end of [() => Effect.void, ...ends]) {
      ;[compared, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<boolean>()]
      const secret = yield* addKey()
      const outcome = yield* Effect.forkChild(outcomeOf(secret))
      yield* Effect.promise(() => compared.promise)
      yield* end(prefixOf(secret))
      goOn.resolve(true)
      assert.strictEqual(yield* Fiber.join(outcome), ends.some((one) => one === end) ? "Unauthorized" : "ok")
    }
    // What was read before the comparison is too old to be used after it.
  }).pipe(Effect.provide(layerLiveWorld({ freshnessMs: 0, secretCheck: { verify } })))
})

test("when the database can be read and not written, then keys are known, and the ping says why it is not ready", function* () {
  const [{ addKey }, store] = [yield* World, yield* KeyStore]
  const secret = yield* addKey()
  yield* store.ping
  yield* sql`ALTER SYSTEM SET default_transaction_read_only = on`
  yield* sql`SELECT pg_reload_conf()`
  const { cause } = yield* Effect.flip(
    eventually(Effect.result(store.ping), Result.isFailure).pipe(Effect.flatMap(Effect.fromResult))
  )
  assert.instanceOf(cause, ReadOnly)
  assert.strictEqual(yield* outcomeOf(secret), "ok")
})
