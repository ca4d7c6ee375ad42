/** A process that is stopped for longer than a lease, closed by another replica, and goes on: nothing it gave away is lost. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { books, settledBooks } from "../support/books.ts"
import { fake as line } from "../support/FakeBackend.ts"
import { eventually, Fake, hello, layerFake } from "../support/Gateway.ts"
import { type GatewayProcess, makeGatewayOnStores, post } from "../support/GatewayProcess.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { layerPatientRedis, layerTestRedis, TestRedis } from "../support/TestRedis.ts"

const leaseS = 3
const words = 150

const world = Layer.mergeAll(
  layerRegistry({ namespace: "tg_", defaults: { rpm: 1000, tpm: 1_000_000, concurrent: 4 } }),
  Layer.unwrap(
    Effect.map(TestRedis, ({ url }) =>
      layerRedisMeter({ leaseS }).pipe(Layer.provide(layerPatientRedis(url)))
    )
  ),
  layerFake
).pipe(Layer.provideMerge(TestPostgres), Layer.provideMerge(layerTestRedis))

/** A key with a budget, what a gateway process needs, and a stream of `words` words that takes about nine seconds. */
const prepared = Effect.gen(function* () {
  const [fake, registry] = [yield* Fake, yield* Registry]
  const tenant = `t-${++serial}`
  yield* registry.createTenant({ name: tenant, allowAllModels: true })
  const { key, secret } = yield* registry.createKey({ tenant, name: "k" })
  yield* registry.setBudgets(key.prefix, { total: 1_000_000 })
  const start = Effect.tap(
    makeGatewayOnStores({ CONCURRENCY_LEASE_S: String(leaseS), MODEL_DISCOVERY_REFRESH_S: "1" }),
    (gateway) => eventually(post(gateway, secret, hello()), ({ status }) => status === 200)
  )
  const lines = [
    ...Array.from({ length: words }, (_, i) => line.chat(` ${i}`)),
    line.done("chat", { prompt_eval_count: 7, eval_count: words })
  ]
  const stream = (gateway: GatewayProcess) =>
    Effect.suspend(() => {
      fake.script({ does: "stream", lines, gapMs: 60 })
      return Effect.forkChild(post(gateway, secret, hello()))
    })
  return { start, stream }
})

let serial = 0

layer(world, { excludeTestServices: true })("a process that is stopped", (it) => {
  it.effect(
    "when it is paused past its lease while another replica runs, then what its client got is booked to the token",
    () =>
      Effect.gen(function* () {
        const pg = yield* PgClient.PgClient
        const { start, stream } = yield* prepared
        const [paused] = [yield* start, yield* start]
        const streaming = yield* stream(paused)
        yield* Effect.sleep("2500 millis")
        yield* paused.pause
        yield* Effect.sleep(`${3 * leaseS} seconds`)
        const whilePaused = yield* books
        yield* paused.resume
        const answer = yield* Fiber.join(streaming)
        const id = answer.headers.get("x-request-id")
        const got = answer.text.split("\n").filter((line) => line.includes('"content":" ')).length
        const [row] = yield* pg<{ readonly tokens_out: number; readonly error_type: string | null }>`
          SELECT tokens_out::float8, error_type FROM audit_log WHERE request_id = ${id}::text::uuid`
        yield* Effect.logInfo(`to the client ${got}, in the row ${row?.tokens_out}`)
        assert.strictEqual(row?.error_type, "aborted", "the other replica has closed it")
        if (row === undefined) return
        assert.isAbove(got, row.tokens_out)
        assert.isAbove(whilePaused.ledger, 0)
        // What the other requests used, 7 and 3 each.
        const others = yield* pg<{ readonly n: number }>`
          SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS n FROM audit_log
          WHERE request_id <> ${id}::text::uuid`
        const settled = yield* settledBooks(20)
        const ended = answer.text.includes('"done":true')
        assert.isTrue(ended, answer.text.slice(-200))
        const last = answer.text.trim().split("\n").at(-1) ?? ""
        const count = (name: string) => Number(new RegExp(`"${name}":(\\d+)`).exec(last)?.[1])
        assert.strictEqual(
          settled.ledger - (others[0]?.n ?? 0),
          count("prompt_eval_count") + count("eval_count"),
          "what the client was told is what is booked"
        )
        assert.isAtLeast(count("eval_count"), got)
        assert.deepInclude(settled, { difference: 0, open: 0 })
        const corrections = yield* pg<{ readonly tokens_out: number; readonly status: number }>`
          SELECT tokens_out::float8, status FROM audit_corrections WHERE request_id = ${id}::text::uuid`
        assert.deepStrictEqual(
          corrections.map((one) => ({ ...one })),
          [{ tokens_out: count("eval_count") - row.tokens_out, status: 200 }]
        )
      }).pipe(Effect.scoped)
  )

  it.effect(
    "when no other replica runs, then it does not take its own requests for dead when it goes on",
    () =>
      Effect.gen(function* () {
        const pg = yield* PgClient.PgClient
        const { start, stream } = yield* prepared
        const alone = yield* start
        const streaming = yield* stream(alone)
        yield* Effect.sleep("2500 millis")
        yield* alone.pause
        yield* Effect.sleep(`${3 * leaseS} seconds`)
        yield* alone.resume
        const { headers, text } = yield* Fiber.join(streaming)
        const id = headers.get("x-request-id")
        assert.include(text, `"eval_count":${words}`)
        const rows = yield* pg<{ readonly status: number; readonly tokens_out: number }>`
          SELECT status, tokens_out::float8 FROM audit_log WHERE request_id = ${id}::text::uuid`
        assert.deepStrictEqual(
          rows.map((row) => ({ ...row })),
          [{ status: 200, tokens_out: words }]
        )
        assert.deepInclude(yield* settledBooks(20), { difference: 0, open: 0 })
      }).pipe(Effect.scoped)
  )
})
