/** A bad network to Redis: what was decided there and never heard of is neither paid twice nor kept for ever. */
import { assert, describe } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, newKey } from "../support/Gateway.ts"
import {
  asIf,
  booksClosed,
  chat,
  granted,
  layerWired,
  tellRedis,
  usedKey,
  verb,
  Wires,
  writing
} from "../support/Wires.ts"
import { atMost } from "../support/wait.ts"
import { inWorld } from "../support/testWith.ts"

inWorld(layerWired())("a bad network to Redis", (test) => {
  describe("a reply that was lost after Redis had done its work", () => {
    for (const stream of [true, false]) {
      const kind = stream ? "stream" : "whole answer"

      test(`when it is reserve's (${kind}), then the answer is 503 without the backend, and slot, tokens and request are given back`, function* () {
        const [{ redis }, backend] = [yield* Wires, yield* Fake]
        const { secret } = yield* usedKey
        const [cuts, asked] = [redis.cuts, backend.requests.length]
        yield* redis.loseReply(verb("reserve"))
        const lost = yield* chat(secret, stream)
        assert.strictEqual(redis.cuts, cuts + 1)
        assert.strictEqual(lost.status, 503, lost.text)
        assert.isBelow(lost.ms, atMost(1500))
        assert.strictEqual(backend.requests.length, asked)
        yield* asIf(secret, 1)
        yield* booksClosed
      })

      test(`when it is settle's (${kind}), then the answer is whole and charged once`, function* () {
        const { redis } = yield* Wires
        const { secret } = yield* usedKey
        const cuts = redis.cuts
        yield* redis.loseReply(verb("settle"))
        const answer = yield* chat(secret, stream)
        assert.strictEqual(redis.cuts, cuts + 1)
        assert.strictEqual(answer.status, 200, answer.text)
        assert.include(answer.text, '"eval_count":3')
        // The next request of the key delivers the settlement again.
        yield* asIf(secret, 2)
        yield* booksClosed
      })
    }

    test("when it is renew's, then the stream goes on and is charged once", function* () {
      const [{ redis }, backend] = [yield* Wires, yield* Fake]
      const { secret } = yield* usedKey
      const words = Array.from({ length: 400 }, () => wire.chat("x"))
      backend.script({
        does: "stream",
        lines: [...words, wire.done("chat", { eval_count: 400 })],
        // What is held lasts longer than it takes to connect again.
        gapMs: 5
      })
      const cuts = redis.cuts
      yield* redis.loseReply(verb("renew"))
      const answer = yield* chat(secret, true)
      assert.strictEqual(redis.cuts, cuts + 1)
      assert.include(answer.text, '"eval_count":400')
      const left = String(granted.budget - granted.cost - 407)
      const seen = yield* eventually(
        call("/api/version", { secret }),
        ({ headers }) => headers.get("x-budget-tokens-remaining") === left
      )
      assert.strictEqual(seen.headers.get("x-budget-tokens-remaining"), left)
      yield* booksClosed
    })

    test("when it is cancel's, then a refused request is given back once", function* () {
      const [{ postgres, redis }, backend] = [yield* Wires, yield* Fake]
      const { secret } = yield* usedKey
      const [cuts, asked] = [redis.cuts, backend.requests.length]
      // Admitted, and refused because its row cannot be written: the backend is not called.
      yield* postgres.loseReply(writing("intent", "to-be-cancelled"))
      yield* redis.loseReply(verb("cancel"))
      assert.strictEqual((yield* chat(secret, false, "to-be-cancelled")).status, 503)
      assert.strictEqual(redis.cuts, cuts + 1)
      assert.strictEqual(backend.requests.length, asked)
      yield* asIf(secret, 1)
      yield* booksClosed
    })

    test("when it is settle's, of a call the backend refused, then its tokens are given back once and the request is spent", function* () {
      const [{ redis }, backend] = [yield* Wires, yield* Fake]
      const { secret } = yield* usedKey
      backend.script({ does: "answer", status: 404 })
      const cuts = redis.cuts
      yield* redis.loseReply(verb("settle"))
      assert.strictEqual((yield* chat(secret)).status, 403)
      assert.strictEqual(redis.cuts, cuts + 1)
      yield* asIf(secret, 1, 2)
      yield* booksClosed
    })
  })

  test("when all replies of a second are lost, then all requests are refused in time and nothing of them stays", function* () {
    const [{ redis }, backend] = [yield* Wires, yield* Fake]
    const { secret } = yield* usedKey
    const { secret: wide } = yield* newKey({ concurrent: 20 })
    const asked = backend.requests.length
    yield* redis.blackHole("toClient")
    const answers = yield* Effect.forEach(
      Array.from({ length: 20 }, (_, i) => i),
      (i) => chat(i % 4 === 0 ? secret : wide, i % 2 === 0),
      { concurrency: "unbounded" }
    )
    yield* redis.heal
    assert.deepStrictEqual(
      answers.map(({ status }) => status),
      answers.map(() => 503)
    )
    assert.isBelow(Math.max(...answers.map(({ ms }) => ms)), atMost(1500))
    assert.strictEqual(backend.requests.length, asked)
    yield* asIf(secret, 1)
    yield* booksClosed
  })

  for (const [name, begin] of [
    ["5 s of latency, so that everything is done late", (redis) => redis.latency(5000)],
    ["a black hole", (redis) => redis.blackHole()]
  ] satisfies ReadonlyArray<readonly [string, (redis: Wires["Service"]["redis"]) => Effect.Effect<void>]>) {
    test(`when ${name}, then the answer is 503 in time, and running streams go to their end and are charged once`, function* () {
      const [{ redis }, backend] = [yield* Wires, yield* Fake]
      const { secret } = yield* usedKey
      const other = yield* usedKey
      const words = Array.from({ length: 3 }, () => wire.chat("x"))
      backend.script({ does: "stream", lines: [...words, wire.done()], gapMs: 500 })
      const arrived = backend.requests.length
      const stream = yield* Effect.forkChild(chat(secret, true), { startImmediately: true })
      yield* backend.until(() => backend.requests.length > arrived)
      yield* begin(redis)
      for (let i = 0; i < 4; i++) {
        const refused = yield* chat(other.secret, i % 2 === 0)
        assert.strictEqual(refused.status, 503, refused.text)
        assert.isBelow(refused.ms, atMost(1500))
      }
      assert.strictEqual(backend.requests.length, arrived + 1)
      const whole = yield* Fiber.join(stream)
      assert.include(whole.text, '"eval_count":3')
      assert.isBelow(whole.ms, atMost(1500 + 2500))
      // Longer than the latency: what was given up on has been done meanwhile.
      if (name.includes("latency")) yield* Effect.sleep("4 seconds")
      yield* redis.heal
      yield* asIf(other.secret, 1)
      yield* asIf(secret, 2)
      yield* booksClosed
    })
  }

  test("when many requests wait at once on a replica, then all are refused, one connection is given up, and no listeners pile up", function* () {
    const { secret } = yield* newKey()
    const warnings: Array<Error> = []
    const note = (warning: Error) => void warnings.push(warning)
    process.on("warning", note)
    yield* tellRedis("REPLICAOF", "127.0.0.1", "1")
    const answers = yield* Effect.forEach(
      Array.from({ length: 60 }, (_, i) => i),
      (i) => chat(secret, i % 2 === 0),
      { concurrency: "unbounded" }
    )
    yield* tellRedis("REPLICAOF", "NO", "ONE")
    const back = yield* eventually(chat(secret), ({ status }) => status === 200)
    process.off("warning", note)
    assert.deepStrictEqual(new Set(answers.map(({ status }) => status)), new Set([503]))
    assert.strictEqual(back.status, 200, back.text)
    assert.deepStrictEqual(warnings, [])
    yield* booksClosed
  })

  test("when scripts are forgotten again and again in traffic, then requests go on", function* () {
    const { secret } = yield* newKey()
    const forgetting = yield* Effect.forkChild(Effect.forever(tellRedis("SCRIPT", "FLUSH")))
    const answers = yield* Effect.forEach(
      Array.from({ length: 80 }, (_, i) => i),
      (i) => chat(secret, i % 2 === 0),
      { concurrency: 8 }
    )
    yield* Fiber.interrupt(forgetting)
    assert.deepStrictEqual(
      answers.map(({ status }) => status),
      answers.map(() => 200)
    )
    yield* booksClosed
  })
})
