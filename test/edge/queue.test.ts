/** The line in front of the backend, over two replicas that share Postgres and Redis. */
import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { fake as wire } from "../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerGateway,
  newKey,
  otherReplica,
  rowOf
} from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

const env = {
  BACKEND_MAX_CONCURRENT: "2",
  QUEUE_MAX_WAIT_MS: "60000",
  QUEUE_MAX_DEPTH: "3",
  CONCURRENCY_LEASE_S: "3"
}

const slowly = (gapMs: number) =>
  ({
    does: "stream",
    lines: [wire.chat("Hi"), wire.done("chat", { prompt_eval_count: 4, eval_count: 1 })],
    gapMs
  }) as const

const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })

/** Inference calls that the backend is answering right now. */
const running = Effect.map(Fake, (backend) => backend.running)

const waitOf = ({ headers }: { readonly headers: Headers }) => Number(headers.get("x-queue-wait-ms"))

/** The first request after the start of a store waits until every replica could have named its own. */
const open = Effect.fnUntraced(function* () {
  const { secret } = yield* newKey()
  yield* eventually(chat(secret), ({ status }) => status === 200)
})

inWorld(layerGateway(env))("a line of two places", (test) => {
  test("when both places are taken, then a third request waits on either replica and says how long", function* () {
    yield* open()
    const other = yield* otherReplica(env)
    yield* open().pipe(Effect.provideService(Gateway, other))
    const backend = yield* Fake
    const { secret } = yield* newKey()
    backend.always(slowly(300))
    const first = yield* Effect.forEach([1, 2], () => Effect.forkChild(chat(secret)))
    yield* eventually(running, (count) => count === 2)
    const third = yield* chat(secret).pipe(Effect.provideService(Gateway, other))
    assert.strictEqual(third.status, 200)
    assert.isAtLeast(waitOf(third), 100)
    assert.strictEqual((yield* rowOf(third))?.queued_ms, waitOf(third))
    for (const one of yield* Fiber.joinAll(first)) assert.isBelow(waitOf(one), 100)
    assert.isAtMost(backend.maxRunning, 2)
  })

  test("when a client leaves the line, then it has consumed nothing", function* () {
    yield* open()
    const backend = yield* Fake
    const { secret, tenant } = yield* newKey({ rpm: 20 })
    backend.always({ does: "hang" })
    const stuck = yield* Effect.forEach([1, 2], () => Effect.forkChild(chat(secret)))
    yield* eventually(running, (count) => count === 2)
    const waiting = yield* Effect.forkChild(chat(secret))
    const depth = Effect.map(
      call("/metrics"),
      ({ text }) => new RegExp(`tollgate_queue_depth\\{tenant="${tenant}"\\} (\\d)`).exec(text)?.[1]
    )
    yield* eventually(depth, (count) => count === "1")
    yield* Fiber.interrupt(waiting)
    yield* eventually(depth, (count) => count === "0")
    backend.always(slowly(1))
    yield* Fiber.interruptAll(stuck)
    const next = yield* chat(secret)
    assert.deepStrictEqual([next.status, next.headers.get("x-ratelimit-remaining-requests")], [200, "17"])
  })
})

inWorld(layerGateway({ ...env, QUEUE_MAX_WAIT_MS: "1500" }))("a line with a short wait", (test) => {
  test("when the wait is too long or too many wait, then the answer is 429 with Retry-After, and nothing is consumed", function* () {
    yield* open()
    const backend = yield* Fake
    const { secret } = yield* newKey({ rpm: 20 })
    backend.always({ does: "hang" })
    const stuck = yield* Effect.forEach([1, 2], () => Effect.forkChild(chat(secret)))
    yield* eventually(running, (count) => count === 2)
    const waiting = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(chat(secret)))
    const metrics = Effect.map(call("/metrics"), ({ text }) => text)
    yield* eventually(metrics, (text) => /tollgate_queue_depth\{tenant="[^"]+"\} 3/.test(text))
    const full = yield* chat(secret)
    const late = yield* Fiber.joinAll(waiting)
    for (const refused of [full, ...late]) {
      assert.strictEqual(refused.status, 429)
      assert.strictEqual(JSON.parse(refused.text).error.type, "capacity_exceeded")
      assert.isAtLeast(Number(refused.headers.get("retry-after")), 1)
    }
    for (const refused of late) assert.isAtLeast(waitOf(refused), 1400)
    // Five others hold a request each; its own claim is given back.
    assert.strictEqual(full.headers.get("x-ratelimit-remaining-requests"), "15")
    backend.always(slowly(1))
    yield* Fiber.interruptAll(stuck)
    const next = yield* chat(secret)
    assert.deepStrictEqual([next.status, next.headers.get("x-ratelimit-remaining-requests")], [200, "17"])
  })
})
