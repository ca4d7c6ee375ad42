/** The time zone of gateways that run, and how it is changed (docs/run.md): all stop, and start with the new one. */
import { assert } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { makeCalendar } from "../../src/domain/Calendar.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { succeeds, tollgateWith } from "../cli/tollgate.ts"
import { eventually, hello, layerFake } from "../support/Gateway.ts"
import { type GatewayProcess, makeGatewayOnStores, post, readiness } from "../support/GatewayProcess.ts"
import { sql } from "../support/sql.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { inWorld } from "../support/testWith.ts"

/** They are 25 hours apart, so their dates always differ. */
const [before, after] = ["Pacific/Pago_Pago", "Pacific/Kiritimati"]

const dateIn = (zone: string) => makeCalendar(zone).dayAt(Date.now()).date

const start = Effect.fnUntraced(function* (TIMEZONE: string) {
  const gateway = yield* makeGatewayOnStores({ TIMEZONE, MODEL_DISCOVERY_REFRESH_S: "1" })
  assert.strictEqual(yield* readiness(gateway), 200, gateway.printed())
  // It is known to others from its first report on.
  yield* eventually(sql`SELECT 1 FROM replicas`, ({ length }) => length > 0)
  return gateway
})

inWorld(Layer.mergeAll(TestPostgres, layerTestRedis, layerFake))("gateways in a time zone", (test) => {
  test("when the zone changes, then no gateway has another one than the others, and all that was booked stays where it is", function* () {
    const { url } = yield* TestDatabase
    const tollgate = (line: string) =>
      Effect.tap(tollgateWith({ DATABASE_URL: Redacted.value(url) }, line.split(" ")), (ran) =>
        Effect.sync(() => succeeds(ran))
      )
    yield* tollgate("create-tenant --name t --allow-all-models")
    const secret = (yield* tollgate("create-key --tenant t --name k")).stdout.trim()
    yield* tollgate(`set-budget --key ${prefixOf(secret)} --daily 1000`)
    /** What is left of the budget of the day after an answer, which has 10 tokens. */
    const leftAfter = (gateway: GatewayProcess) =>
      Effect.map(
        eventually(post(gateway, secret, hello({ stream: false })), ({ status }) => status === 200),
        ({ headers, status }) => [status, headers.get("x-budget-tokens-remaining")]
      )
    const booked = Effect.map(
      sql<{ day: string; tokens: number }>`
        SELECT day::text, (tokens_in + tokens_out)::float8 AS tokens FROM ledger ORDER BY day`,
      (rows) => rows.map(({ day, tokens }) => [day, tokens])
    )
    const dates = () => [dateIn(before), dateIn(after)] as const
    const [old, next] = dates()

    const first = yield* start(before)
    assert.deepStrictEqual(yield* leftAfter(first), [200, "990"])
    const refused = yield* Effect.flip(makeGatewayOnStores({ TIMEZONE: after }))
    assert.include(
      String(refused),
      `TIMEZONE is ${after} here and ${before} for the gateways that use this database: all have the same; to change it, stop all of them`
    )
    assert.deepStrictEqual(yield* leftAfter(first), [200, "980"])
    assert.strictEqual(yield* first.stop, 0)

    const second = yield* start(after)
    assert.deepStrictEqual(yield* leftAfter(second), [200, "990"])
    assert.include((yield* tollgate("report --since today")).stdout, `${after} days`)
    assert.match((yield* tollgate("reconcile")).stdout, /The books of the database are right/)
    assert.include(
      String(yield* Effect.flip(makeGatewayOnStores({ TIMEZONE: before }))),
      `TIMEZONE is ${before} here and ${after} for`
    )
    assert.strictEqual(yield* second.stop, 0)

    // The date of the first zone comes again: it goes on with what was spent.
    const third = yield* start(before)
    assert.deepStrictEqual(yield* leftAfter(third), [200, "970"])
    assert.match((yield* tollgate("reconcile")).stdout, /The books of the database are right/)
    assert.strictEqual(yield* third.stop, 0)
    // Unless a date has ended meanwhile.
    if (dates().join() === [old, next].join())
      assert.deepStrictEqual(yield* booked, [
        [old, 30],
        [next, 10]
      ])
  })
})
