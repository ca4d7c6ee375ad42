import { assert } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { SqlClient } from "effect/sql"
import { Ledger } from "../../src/gates/limits/Ledger.ts"
import { callerOf } from "../support/records.ts"
import { sql } from "../support/sql.ts"
import { inWorld } from "../support/testWith.ts"
import { eventually } from "../support/wait.ts"
import { liveWorld } from "./auditWorld.ts"
import { suite } from "./Ledger.ts"

suite("Postgres", liveWorld)

inWorld(liveWorld)("the use of keys in Postgres", (test) => {
  test("when the table does not answer, then all who ask get a failure, and one statement at a time waits for it", function* () {
    const [client, ledger] = [yield* SqlClient.SqlClient, yield* Ledger]
    const [locked, done] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
    yield* Effect.addFinalizer(() => Deferred.succeed(done, undefined))
    const holding = yield* Effect.forkChild(
      client.withTransaction(
        Effect.gen(function* () {
          yield* sql`LOCK TABLE usage_daily IN ACCESS EXCLUSIVE MODE`
          yield* Deferred.succeed(locked, undefined)
          yield* Deferred.await(done)
        })
      )
    )
    yield* Deferred.await(locked)
    const asking = yield* Effect.forEach(Array.from({ length: 5 }), () =>
      Effect.forkChild(Effect.flip(ledger.uses(callerOf().accountId, "2026-11-01", 10)), {
        startImmediately: true
      })
    )
    const waiting = Effect.map(
      sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FROM usage_daily u%'
        AND pid <> pg_backend_pid()`,
      ({ length }) => length
    )
    assert.strictEqual(yield* eventually(waiting, (count) => count > 0), 1)
    let most = 1
    while (asking.some((fiber) => fiber.pollUnsafe() === undefined)) most = Math.max(most, yield* waiting)
    assert.strictEqual(most, 1)
    for (const fiber of asking) assert.strictEqual((yield* Fiber.join(fiber))._tag, "LedgerDown")
    yield* Deferred.succeed(done, undefined)
    yield* Fiber.join(holding)
    assert.deepStrictEqual(
      yield* eventually(
        Effect.option(ledger.uses(callerOf().accountId, "2026-11-01", 10)),
        ({ _tag }) => _tag === "Some"
      ).pipe(Effect.map(({ _tag }) => _tag)),
      "Some"
    )
  })
})
