import { assert, it } from "@effect/vitest"
import { Effect, Scope, Exit } from "effect"
import { TestClock } from "effect/testing"
import type { AuditRow } from "../../../src/audit/rows.ts"
import { makeTally } from "../../../src/audit/Tally.ts"
import { callerOf, refusalOf } from "../../support/records.ts"
import { testWith } from "../../support/testWith.ts"

const makeWorld = Effect.gen(function* () {
  const offered: Array<AuditRow> = []
  const world = { offered, room: true }
  const tally = yield* makeTally((row) =>
    Effect.sync(() => {
      if (world.room) offered.push({ ...row })
      return world.room
    })
  )
  return { tally, world }
})

const test = testWith(it.effect)

test("when a thousand refusals of one sender end alike within a second, then one row stands for them", function* () {
  const { tally, world } = yield* makeWorld
  const first = refusalOf()
  yield* tally.add({ ...first, latencyMs: 3 })
  for (let n = 1; n < 1000; n += 1) yield* tally.add({ ...refusalOf(), latencyMs: n === 7 ? 900 : 1 })
  assert.isEmpty(world.offered)
  yield* TestClock.adjust("1 second")
  assert.strictEqual(world.offered.length, 1)
  assert.deepInclude(world.offered[0], {
    request_id: first.arrival.requestId,
    repeats: 1000,
    latency_ms: 900,
    tokens_in: 0,
    tokens_out: 0
  })
  yield* TestClock.adjust("10 seconds")
  assert.strictEqual(world.offered.length, 1)
  yield* tally.add(refusalOf())
  yield* TestClock.adjust("1 second")
  assert.deepStrictEqual(
    world.offered.map(({ repeats }) => repeats),
    [1000, 1]
  )
})

test("when senders, statuses or error types differ, then each has its row; what else differs becomes *", function* () {
  const { tally, world } = yield* makeWorld
  const [one, other] = [callerOf(), callerOf()]
  const elsewhere = refusalOf({ caller: one })
  for (const record of [
    refusalOf({ caller: one }),
    { ...elsewhere, arrival: { ...elsewhere.arrival, endpoint: "/v1/models", clientIp: "192.0.2.99" } },
    refusalOf({ caller: other }),
    refusalOf({ caller: one, status: 400 }),
    refusalOf({ caller: one, errorType: "other" }),
    refusalOf()
  ])
    yield* tally.add(record)
  yield* TestClock.adjust("1 second")
  assert.deepStrictEqual(
    world.offered.map(({ endpoint, repeats }) => [repeats, endpoint === "*"]),
    [
      [2, true],
      [1, false],
      [1, false],
      [1, false],
      [1, false]
    ]
  )
  assert.strictEqual(world.offered[0]?.client_ip, "*")
  assert.strictEqual(world.offered[0]?.key_id, one.keyId)
})

test("when a row finds no room, then it is counted on and offered again", function* () {
  const { tally, world } = yield* makeWorld
  world.room = false
  yield* tally.add(refusalOf())
  yield* TestClock.adjust("1 second")
  yield* tally.add(refusalOf())
  world.room = true
  yield* TestClock.adjust("1 second")
  assert.deepStrictEqual(
    world.offered.map(({ repeats }) => repeats),
    [2]
  )
})

test("when a thousand rows are being counted, then they are written at once: the memory is bounded", function* () {
  const { tally, world } = yield* makeWorld
  for (let n = 0; n < 1000; n += 1) yield* tally.add(refusalOf({ caller: callerOf() }))
  assert.strictEqual(world.offered.length, 1000)
})

test("when the process stops, then what was counted is written first", function* () {
  const scope = yield* Scope.make()
  const { tally, world } = yield* Scope.provide(makeWorld, scope)
  yield* tally.add(refusalOf())
  yield* tally.add(refusalOf())
  yield* Scope.close(scope, Exit.void)
  assert.deepStrictEqual(
    world.offered.map(({ repeats }) => repeats),
    [2]
  )
})
