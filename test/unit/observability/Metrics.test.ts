import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerBackendGauges } from "../../../src/backend/gauges.ts"
import { layer, Metrics } from "../../../src/observability/Metrics.ts"
import { CircuitBreaker, layerCircuitBreaker, type Verdict } from "../../../src/backend/CircuitBreaker.ts"
import { TestClock } from "effect/testing"
import { callerOf, endOf, intentOf, refusalOf, usageOf } from "../../support/records.ts"
import { guarded } from "../../support/guarded.ts"
import { testWith } from "../../support/testWith.ts"

/** The lines of one family, without the comments. */
const linesOf = (name: string) =>
  Effect.flatMap(Metrics, (metrics) => metrics.exposition).pipe(
    Effect.map((text) => text.split("\n").filter((line) => line.startsWith(name)))
  )

const recordOf = (tenantName: string, model: string) => {
  const intent = { ...intentOf({ caller: { ...callerOf(), tenantName } }), model }
  return endOf(intent, usageOf(7, 3), { latencyMs: 1500 })
}

const test = testWith(it.live, Layer.fresh(layer))

test("when requests end, then they, their tokens and time are counted by tenant and model", function* () {
  const metrics = yield* Metrics
  metrics.observe(recordOf("acme", "m:latest"), true)
  metrics.observe(recordOf("acme", "m:latest"), true)
  assert.deepStrictEqual(yield* linesOf("gateway_requests_total{"), [
    `gateway_requests_total{tenant="acme",model="m:latest",status="200"} 2`
  ])
  assert.deepStrictEqual(yield* linesOf("gateway_tokens_total{"), [
    `gateway_tokens_total{tenant="acme",model="m:latest",direction="in"} 14`,
    `gateway_tokens_total{tenant="acme",model="m:latest",direction="out"} 6`
  ])
  const { usage, ...record } = recordOf("acme", "m:latest")
  metrics.observe({ ...record, usage: { ...usage, tokensCached: 5 } }, true)
  assert.deepStrictEqual(yield* linesOf("tollgate_tokens_cached_total{"), [
    `tollgate_tokens_cached_total{tenant="acme",model="m:latest"} 5`
  ])
  assert.include(
    yield* linesOf("gateway_request_duration_seconds_sum{"),
    `gateway_request_duration_seconds_sum{tenant="acme",model="m:latest"} 4.5`
  )
})

test("when a model is made up or a caller unknown, then no series is added", function* () {
  const metrics = yield* Metrics
  for (let n = 0; n < 500; n += 1) {
    metrics.observe(recordOf("acme", `made-up-${n}`), false)
    metrics.observe(refusalOf({ model: `other-${n}` }), false)
  }
  assert.deepStrictEqual((yield* linesOf("gateway_requests_total{")).sort(), [
    `gateway_requests_total{tenant="acme",model="none",status="200"} 500`,
    `gateway_requests_total{tenant="none",model="none",status="401"} 500`
  ])
  assert.strictEqual((yield* linesOf("gateway_request_duration_seconds_count")).length, 2)
  assert.notInclude(yield* metrics.exposition, "made-up")
})

test("when a tenant's name has line breaks, then it writes no lines of its own", function* () {
  const metrics = yield* Metrics
  metrics.observe(recordOf(`a"} 1\ngateway_evil_total 9\\`, "m"), true)
  assert.deepStrictEqual(yield* linesOf("gateway_evil_total"), [])
  assert.deepStrictEqual(yield* linesOf("gateway_requests_total{"), [
    String.raw`gateway_requests_total{tenant="a\"} 1\ngateway_evil_total 9\\",model="m",status="200"} 1`
  ])
})

test("when a request has a key, a prefix and an id, then none of them is a label", function* () {
  const metrics = yield* Metrics
  const record = recordOf("acme", "m")
  metrics.observe(record, true)
  const text = yield* metrics.exposition
  for (const secret of [record.caller?.keyPrefix, record.caller?.keyId, record.arrival.requestId]) {
    assert.notInclude(text, secret ?? "nothing")
  }
})

test("when a gauge breaks or hangs, then the others are shown", function* () {
  const metrics = yield* Metrics
  let value = 1
  yield* metrics.probe({ name: "test_good", help: "h", read: Effect.sync(() => value) })
  yield* metrics.probe({
    name: "test_broken",
    help: "h",
    read: Effect.die(new Error("a bug"))
  })
  yield* metrics.probe({ name: "test_hanging", help: "h", read: Effect.never })
  assert.deepStrictEqual(yield* linesOf("test_good"), ["test_good 1"])
  value = 2
  assert.deepStrictEqual(yield* linesOf("test_"), ["test_good 2", "test_broken Nan", "test_hanging Nan"])
})

test("when metrics are shown, then first frames, revocations and the process are among them", function* () {
  const metrics = yield* Metrics
  metrics.firstFrame(200, "m:latest")
  metrics.firstFrame(-60_000, "m:latest")
  yield* metrics.revoked(3)
  yield* metrics.revoked(-1)
  assert.deepStrictEqual(yield* linesOf("tollgate_backend_first_frame_seconds_count"), [
    'tollgate_backend_first_frame_seconds_count{model="m:latest"} 2'
  ])
  assert.deepStrictEqual(yield* linesOf("tollgate_revocation_seconds_sum"), [
    "tollgate_revocation_seconds_sum 0.003"
  ])
  assert.isNotEmpty(yield* linesOf("process_resident_memory_bytes"))
})

testWith(
  it.effect,
  layerBackendGauges.pipe(
    Layer.provideMerge(Layer.merge(Layer.fresh(layer), layerCircuitBreaker({ failures: 1, openMs: 30_000 })))
  )
)("when the breaker changes its state, then the gauges show it, and the keys of their own", function* () {
  const breaker = yield* CircuitBreaker
  const failing = (verdict: Verdict) =>
    Effect.ignore(
      guarded(
        breaker,
        { keyId: "k", keyPrefix: "tg_k", tenantId: "t", tenantName: "t" },
        Effect.fail("down"),
        () => verdict
      )
    )
  const figures = Effect.all([linesOf("tollgate_breaker_state"), linesOf("tollgate_breaker_open_keys")])
  const shows = (state: number, keys: number) => [
    [`tollgate_breaker_state ${state}`],
    [`tollgate_breaker_open_keys ${keys}`]
  ]
  assert.deepStrictEqual(yield* figures, shows(0, 0))
  yield* failing("failure")
  assert.deepStrictEqual(yield* figures, shows(0, 1))
  yield* TestClock.adjust("30 seconds")
  yield* failing("outage")
  assert.deepStrictEqual(yield* figures, shows(2, 0))
  yield* TestClock.adjust("30 seconds")
  assert.deepStrictEqual(yield* figures, shows(1, 0))
})
