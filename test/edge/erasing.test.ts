/** A person is erased while gateways book: docs/run.md#the-data-of-one-person. */
import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { tollgateBeside } from "../cli/inProcess.ts"
import { succeeds } from "../cli/tollgate.ts"
import { call, eventually, hello, layerGateway, newKey, rowOf } from "../support/Gateway.ts"
import { sql } from "../support/sql.ts"
import { inWorld } from "../support/testWith.ts"

/** A key whose users have accounts of their own, and what its requests are booked to. */
const keyOfMany = Effect.fnUntraced(function* () {
  const { prefix, secret } = yield* newKey()
  succeeds(yield* tollgateBeside("set-end-user", "--key", prefix, "--header", "X-User"))
  succeeds(yield* tollgateBeside("set-limits", "--key", prefix, "--each-user", "--rpm", "1000"))
  const chat = Effect.fnUntraced(function* (user: string) {
    const answer = yield* call("/api/chat", { secret, body: hello(), headers: { "X-User": user } })
    assert.strictEqual(answer.status, 200)
    yield* rowOf(answer)
  })
  const named = Effect.map(
    sql<{ name: string; requests: number; tokens: number }>`
      SELECT CASE WHEN end_user LIKE 'erased:%' THEN 'erased' ELSE end_user END AS name, count(*)::float8 AS requests,
        sum(tokens_in + tokens_out)::float8 AS tokens
      FROM audit_log WHERE key_prefix = ${prefix} AND admitted_at IS NOT NULL GROUP BY 1 ORDER BY 1`,
    (rows) => rows.map(({ name, requests, tokens }) => [name, requests, tokens])
  )
  return { prefix, chat, named }
})

/** Holds the erasing command after its first look at the database, while `work` runs. */
const during = Effect.fnUntraced(function* <E, R>(
  prefix: string,
  erasing: ReturnType<typeof tollgateBeside>,
  work: Effect.Effect<void, E, R>
) {
  const client = yield* SqlClient.SqlClient
  const [locked, done] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
  yield* Effect.addFinalizer(() => Deferred.succeed(done, undefined))
  const holding = yield* Effect.forkChild(
    client.withTransaction(
      Effect.gen(function* () {
        yield* sql`SELECT 1 FROM api_keys WHERE prefix = ${prefix} FOR UPDATE`
        yield* Deferred.succeed(locked, undefined)
        yield* Deferred.await(done)
      })
    )
  )
  yield* Deferred.await(locked)
  const running = yield* Effect.forkChild(erasing)
  const waits = sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database()
    AND wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'`
  assert.lengthOf(yield* eventually(waits, ({ length }) => length === 1), 1)
  yield* work
  yield* Deferred.succeed(done, undefined)
  yield* Fiber.join(holding)
  return yield* Fiber.join(running)
})

const booksAreRight = Effect.gen(function* () {
  assert.match((yield* tollgateBeside("reconcile")).stdout, /The books of the database are right/)
})

inWorld(layerGateway())("a booking during an erase", (test) => {
  test("when it is of the person, then it is erased with the others, nothing is lost, and the books are right", function* () {
    const { chat, named, prefix } = yield* keyOfMany()
    yield* chat("ada")
    yield* chat("ada")
    yield* chat("zoe")
    const erasing = tollgateBeside("erase-user", "--key", prefix, "--user", "ada")
    const erased = yield* during(prefix, erasing, chat("ada"))
    assert.include(erased.stdout, "3 rows of the audit got a pseudonym", erased.stderr)
    assert.deepStrictEqual(yield* named, [
      ["erased", 3, 30],
      ["zoe", 1, 10]
    ])
    yield* booksAreRight
    // Who comes back is a new person.
    yield* chat("ada")
    assert.deepStrictEqual((yield* named)[0], ["ada", 1, 10])
    yield* booksAreRight
  })

  test("when it is the first one of another person of the key, then it stays under that name as a whole", function* () {
    const { chat, named, prefix } = yield* keyOfMany()
    yield* chat("ada")
    yield* chat("zoe")
    const erasing = tollgateBeside("erase-user", "--key", prefix, "--yes")
    const erased = yield* during(prefix, erasing, chat("bob"))
    assert.include(erased.stdout, "2 rows of the audit got a pseudonym", erased.stderr)
    assert.deepStrictEqual(yield* named, [
      ["bob", 1, 10],
      ["erased", 2, 20]
    ])
    yield* booksAreRight
    assert.include((yield* tollgateBeside("erase-user", "--key", prefix, "--yes")).stdout, "3 rows")
    assert.deepStrictEqual(yield* named, [["erased", 3, 30]])
    yield* booksAreRight
  })
})
