/**
 * A defect in whichever part of the gateway, at whichever step: the client is told as much as an `internal_error`, the
 * request is audited and charged once, its slot and hold are free, and the next one is served.
 */
import { assert, layer } from "@effect/vitest"
import { Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { settledBooks } from "../support/books.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerFake, newKey } from "../support/Gateway.ts"
import { layerSabotaged, Sabotage } from "../support/Sabotage.ts"
import { layerReadyRedis } from "../support/TestMeter.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { quickHash } from "../support/quickHash.ts"
import { testWith } from "../support/testWith.ts"

/** Long: no heartbeat comes in the time of a case, so a part that is armed breaks in the request itself. */
const leaseS = 30
const budget = 100_000
const estimate = 10

const world = layerSabotaged({ CONCURRENCY_LEASE_S: String(leaseS) }).pipe(
  Layer.provideMerge(
    layerRegistry({ namespace: "tg_", hash: quickHash, defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } })
  ),
  Layer.provideMerge(layerRedisMeter({ leaseS }).pipe(Layer.provide(layerReadyRedis))),
  Layer.provideMerge(Layer.fresh(layerFake)),
  Layer.provideMerge(layerTestPostgres()),
  Layer.provideMerge(Layer.fresh(layerTestRedis))
)

interface Step {
  readonly part: string
  readonly status: number
  /** tokens charged; a backend that was called is paid for what was seen of its answer */
  readonly tokens: number
  /** what the audit row says of it, where that is not what the client was told */
  readonly audited?: number
  readonly stream?: boolean
  /** whether the key is new: its totals are in nobody's memory yet */
  readonly cold?: boolean
}

const before: ReadonlyArray<Step> = [
  "KeyStore.verify",
  "Discovery.resolve",
  "Limiter.reserve",
  "Meter.reserve",
  "Audit.open"
].map((part) => ({ part, status: 500, tokens: 0 }))

const cold: ReadonlyArray<Step> = [{ part: "Budget.restore", status: 500, tokens: 0, cold: true }]

const after: ReadonlyArray<Step> = [
  { part: "Backend.forward", status: 500, tokens: estimate },
  { part: "Metrics.firstFrame", status: 500, tokens: estimate },
  { part: "Metrics.observe", status: 200, tokens: 10 },
  { part: "Meter.settle", status: 200, tokens: 10 },
  { part: "Audit.close", status: 500, tokens: 10 }
]

/** Output tokens after which a stream asks for more than the 256 it holds at first. */
const seen = 193

const streams: ReadonlyArray<Step> = [
  { part: "Meter.renew", status: 200, audited: 500, tokens: estimate + seen, stream: true }
]

layer(world, { excludeTestServices: true })("a defect", (it) => {
  const test = testWith(it.effect)

  for (const { part, status, tokens, audited = status, cold: isNew = false, stream = false } of [
    ...before,
    ...cold,
    ...after,
    ...streams
  ]) {
    test(`when it is in ${part}, then it is a 500 in the error shape`, function* () {
      const [backend, registry, sabotage, sql] = [
        yield* Fake,
        yield* Registry,
        yield* Sabotage,
        yield* SqlClient.SqlClient
      ]
      const { secret, prefix } = yield* newKey({ concurrent: 1 })
      yield* registry.setBudgets(prefix, { total: budget })
      const warm = isNew ? yield* newKey() : { secret }
      const chat = (id: string, by = secret) =>
        call("/api/chat", { secret: by, body: hello({ stream }), headers: { "x-request-id": id } })
      assert.strictEqual(
        (yield* eventually(chat("first", warm.secret), (answer) => answer.status === 200)).status,
        200
      )
      if (stream) {
        const words = Array.from({ length: 400 }, () => wire.chat("x"))
        // The first answer long enough to be looked after makes Redis remember that it was there: not the defect's turn.
        backend.script({
          does: "stream",
          lines: [...words, wire.done("chat", { eval_count: 400 })],
          gapMs: 1
        })
        assert.strictEqual((yield* chat("looked-after")).status, 200)
        // However the words are read, none comes after those that make the stream ask for more.
        backend.script({ does: "stream", lines: words.slice(0, seen), ends: "hang" })
      }
      const id = `broken-${part}`
      sabotage.arm(part)
      const answer = yield* chat(id)
      assert.isTrue(sabotage.sprung())
      assert.strictEqual(answer.status, status, answer.text)
      const rows = yield* eventually(
        sql<{ readonly status: number; readonly tokens: number }>`
            SELECT status, (tokens_in + tokens_out)::float8 AS tokens FROM audit_log WHERE client_request_id = ${id}`,
        (found) => found.length > 0
      )
      assert.deepStrictEqual(
        rows.map((row) => ({ ...row })),
        [{ status: audited, tokens }]
      )
      const next = yield* eventually(chat("next"), (answer) => answer.status === 200)
      assert.strictEqual(next.status, 200, next.text)
      const { open, difference } = yield* settledBooks(leaseS + 5)
      assert.deepStrictEqual({ open, difference }, { open: 0, difference: 0 })
    })
  }

  for (const [part, path] of [
    ["Metrics.exposition", "/metrics"],
    ["KeyStore.ping", "/readyz"]
  ] as const) {
    test(`when it is in ${part}, then it is a 500 in the error shape, though ${path} has no audit row`, function* () {
      const sabotage = yield* Sabotage
      sabotage.arm(part)
      // Readiness may be a second old: the metrics ask for it as well.
      const answer = yield* eventually(call(path), () => sabotage.sprung())
      assert.isTrue(sabotage.sprung())
      assert.strictEqual(answer.status, 500)
      assert.deepStrictEqual(JSON.parse(answer.text), {
        error: { message: "internal error", type: "internal_error", code: 500 },
        request_id: answer.headers.get("x-request-id")
      })
      const next = yield* eventually(call(path), ({ status }) => status === 200)
      assert.strictEqual(next.status, 200)
    })
  }
})
