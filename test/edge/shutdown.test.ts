/** Being told to stop: the balancer learns it first, nothing that runs is cut before its time, and all of it is counted. */
import { assert } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Fiber, Layer } from "effect"
import { fake } from "../support/FakeBackend.ts"
import {
  auditRow,
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerFake,
  layerPatientOn,
  newKey
} from "../support/Gateway.ts"
import { talk } from "../support/RawClient.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { makeStopwatch, atMost } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

/** A gateway that is told to stop as SIGTERM does it: the fiber that runs it is interrupted. */
const startGateway = Effect.fnUntraced(function* (env: Record<string, string>) {
  const started = yield* Deferred.make<Context.Context<Layer.Success<ReturnType<typeof layerPatientOn>>>>()
  const running = yield* Layer.build(layerPatientOn(env)).pipe(
    Effect.tap((context) => Deferred.succeed(started, context)),
    Effect.andThen(Effect.never),
    Effect.scoped,
    Effect.forkScoped
  )
  const context = yield* Effect.raceFirst(
    Deferred.await(started),
    Effect.andThen(Fiber.join(running), Effect.never)
  )
  return { context, stop: Fiber.interrupt(running), url: Context.get(context, Gateway).url }
})

const words = (count: number) => Array.from({ length: count }, (_, i) => fake.chat(` ${i}`))

const last = (text: string): unknown => JSON.parse(text.trimEnd().split("\n").at(-1) ?? "")

/** Stopping has begun, as the balancer sees it. */
const notReady = eventually(call("/readyz"), ({ status }) => status === 503)

const stores = Layer.merge(layerTestPostgres(), Layer.fresh(layerTestRedis))

inWorld(Layer.merge(Layer.fresh(layerFake), stores))("a gateway that is told to stop", (test) => {
  test("when it drains, then it is not ready at once, still answers, and lets a stream run to its end", function* () {
    const gateway = yield* startGateway({ SHUTDOWN_DRAIN_MS: "2000", SHUTDOWN_GRACE_MS: "10000" })
    yield* Effect.gen(function* () {
      const backend = yield* Fake
      const { secret } = yield* newKey()
      backend.script({
        does: "stream",
        lines: [...words(20), fake.done("chat", { eval_count: 20 })],
        gapMs: 150
      })
      const stream = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }))
      yield* backend.until(() => backend.requests.length === 1)
      assert.strictEqual((yield* call("/readyz")).status, 200)

      const stopping = yield* Effect.forkChild(gateway.stop)
      const refused = yield* notReady
      assert.strictEqual(refused.status, 503)
      assert.strictEqual(refused.headers.get("connection"), "close")
      assert.strictEqual((yield* call("/healthz")).status, 200)
      const late = yield* call("/api/chat", { secret, body: hello() })
      assert.strictEqual(late.status, 200)
      assert.strictEqual(late.headers.get("connection"), "close")

      const answer = yield* Fiber.join(stream)
      assert.strictEqual(answer.text.trimEnd().split("\n").length, 21)
      assert.deepInclude(last(answer.text), { done: true, eval_count: 20 })
      yield* Fiber.join(stopping)
      assert.deepInclude(yield* auditRow(answer.headers.get("x-request-id")), {
        status: 200,
        tokens_out: 20n
      })
      const gone = yield* Effect.exit(Effect.tryPromise(() => fetch(gateway.url)))
      assert.isTrue(Exit.isFailure(gone), "it still listens")
    }).pipe(Effect.provide(gateway.context))
  })

  test("when a request outlives the grace, then it ends in its own words, charged for what was sent", function* () {
    const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "500" })
    yield* Effect.gen(function* () {
      const backend = yield* Fake
      const seen = backend.requests.length
      const { secret } = yield* newKey()
      const forever = { does: "stream", lines: words(400), gapMs: 40 } as const
      backend.script(forever, forever, forever, { does: "hang" })
      const [native, openai, whole, waiting] = yield* Effect.all(
        [
          call("/api/chat", { secret, body: hello() }),
          call("/v1/chat/completions", { secret, body: hello({ stream: true }) }),
          call("/api/chat", { secret, body: hello({ stream: false }) }),
          Effect.andThen(
            // The fourth call of the backend: the one that never says a word.
            backend.until(() => backend.requests.length === seen + 3),
            call("/api/chat", { secret, body: hello() })
          ),
          Effect.andThen(
            backend.until(() => backend.requests.length === seen + 4),
            gateway.stop
          )
        ],
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(last(native.text), { error: "service temporarily unavailable" })
      const event = openai.text.trimEnd().split("\n\n").at(-1) ?? ""
      assert.include(event, '"type":"service_unavailable"')
      assert.notInclude(openai.text, "[DONE]")
      assert.deepStrictEqual([whole.status, waiting.status], [503, 503])
      assert.strictEqual(whole.headers.get("retry-after"), "1")

      const frames = native.text.trimEnd().split("\n").length - 1
      assert.isAbove(frames, 5)
      const row = yield* auditRow(native.headers.get("x-request-id"))
      assert.deepInclude(row, {
        status: 503,
        error_type: "service_unavailable",
        usage_source: "counted"
      })
      assert.strictEqual(Number(row?.tokens_out), frames)
      assert.deepInclude(yield* auditRow(openai.headers.get("x-request-id")), { status: 503 })
      assert.isAbove(Number((yield* auditRow(whole.headers.get("x-request-id")))?.tokens_out), 5)
      assert.deepInclude(yield* auditRow(waiting.headers.get("x-request-id")), {
        status: 503,
        tokens_in: 0n
      })
      yield* backend.until(() => backend.requests.slice(seen).every(({ closedAt }) => closedAt !== undefined))
    }).pipe(Effect.provide(gateway.context))
  })

  test("when a body is still coming at the end of the grace, then its request is answered as any other", function* () {
    const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "200" })
    yield* Effect.gen(function* () {
      const { secret } = yield* newKey()
      const isRead = yield* Deferred.make<void>()
      const head = `POST /api/chat HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${secret}\r\nContent-Type: application/json\r\n`
      const talking = yield* Effect.forkChild(
        talk(gateway.url, `${head}Expect: 100-continue\r\nContent-Length: 100\r\n\r\n{`, {
          also: (socket) => socket.once("data", () => Deferred.doneUnsafe(isRead, Exit.void))
        }),
        { startImmediately: true }
      )
      yield* Deferred.await(isRead)
      yield* gateway.stop
      const { closed, responses } = yield* Fiber.join(talking)
      const answer = responses.at(-1)
      assert.strictEqual(answer?.status, 503)
      assert.isDefined(answer?.headers.get("x-request-id"))
      assert.include(answer?.body, "service temporarily unavailable")
      assert.isTrue(closed)
    }).pipe(Effect.provide(gateway.context))
  })

  test("when a stream stays silent through the grace, then it ends in its own words, charged for what was sent", function* () {
    const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "200" })
    yield* Effect.gen(function* () {
      const backend = yield* Fake
      const { prefix, secret } = yield* newKey()
      const seen = backend.requests.length
      backend.script({ does: "stream", lines: words(3), ends: "hang" })
      const stream = yield* Effect.forkChild(call("/api/chat", { secret, body: hello() }))
      yield* backend.until(() => (backend.requests[seen]?.written ?? 0) > 300)
      const began = makeStopwatch()
      yield* gateway.stop
      assert.isBelow(began(), atMost(3000))
      assert.deepStrictEqual(last((yield* Fiber.join(stream)).text), {
        error: "service temporarily unavailable"
      })
      const rows = yield* sql`
          SELECT status, error_type, tokens_out::int FROM audit_log WHERE key_prefix = ${prefix}`
      assert.deepStrictEqual(rows, [{ status: 503, error_type: "service_unavailable", tokens_out: 3 }])
      assert.deepStrictEqual(yield* sql`SELECT 1 FROM intents WHERE key_prefix = ${prefix}`, [])
    }).pipe(Effect.provide(gateway.context))
  })
})
