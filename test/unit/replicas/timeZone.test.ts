/** All gateways of a database count days in one time zone. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { readTimeZone, takeTimeZone, watchTimeZone } from "../../../src/replicas/timeZone.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const live = testWith(it.live, TestPostgres)

live(
  "when a gateway starts, then it takes its zone if no other gateway runs, else it has to have theirs",
  function* () {
    assert.strictEqual(yield* readTimeZone, "UTC")
    yield* takeTimeZone("Europe/Berlin")
    assert.strictEqual(yield* readTimeZone, "Europe/Berlin")
    // Another one reports, that of a process that was killed a while ago does not count.
    yield* sql`INSERT INTO replicas (id, host, version, gauges, seen_at) VALUES
    (gen_random_uuid(), 'gone', '1', '{}', now() - interval '16 seconds')`
    yield* takeTimeZone("UTC")
    yield* takeTimeZone("Europe/Berlin")
    yield* sql`INSERT INTO replicas (id, host, version, gauges) VALUES (gen_random_uuid(), 'here', '1', '{}')`
    yield* takeTimeZone("Europe/Berlin")
    const refused = yield* Effect.flip(takeTimeZone("Asia/Kathmandu"))
    assert.strictEqual(
      refused.message,
      "TIMEZONE is Asia/Kathmandu here and Europe/Berlin for the gateways that use this database: all have the same; to change it, stop all of them (one that was killed counts for 15 seconds)"
    )
    assert.strictEqual(yield* readTimeZone, "Europe/Berlin")
  }
)

const test = testWith(it.effect, TestPostgres)

test("when another gateway took another zone meanwhile, then a running one ends", function* () {
  yield* sql`UPDATE time_zone SET zone = 'UTC'`
  const watch = yield* Effect.forkChild(Effect.flip(watchTimeZone("UTC")), { startImmediately: true })
  yield* TestClock.adjust("5 seconds")
  yield* sql`UPDATE time_zone SET zone = 'Asia/Kathmandu'`
  while (watch.pollUnsafe() === undefined) yield* TestClock.adjust("5 seconds")
  assert.deepInclude(yield* Fiber.join(watch), { _tag: "OtherTimeZone", others: "Asia/Kathmandu" })
})
