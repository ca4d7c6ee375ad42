/**
 * A settlement that cannot be delivered. What a request used may be more than it held: until its counters are told,
 * nobody is admitted on them, and afterwards a budget is spent to the token.
 */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { settledBooks, spentOf } from "../support/books.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, hello, modelSpeaks, newKey } from "../support/Gateway.ts"
import { layerWired, leaseS, verb, Wires } from "../support/Wires.ts"

/** 120 bytes are taken for 30 tokens, and the message for 8 more; the backend counts 109. */
const long = "0123456789".repeat(12)
const counted = 109
/** "Hello" is counted as it is estimated, 10, so that the last request finds just as much as it costs. */
const short = {
  does: "stream",
  lines: [...["a", "b", "c"].map((text) => wire.chat(text)), wire.done("chat", { prompt_eval_count: 10 })],
  together: true
} as const
const cost = 13

const ask = (secret: string, content = "Hello") =>
  call("/api/chat", { secret, body: hello({ stream: false, messages: [{ role: "user", content }] }) })

/** The settlement of the first request that is settled, and of no other. */
const firstSettled = () => {
  let first: string | undefined
  return (bytes: Buffer): boolean => {
    const text = bytes.toString("latin1")
    if (!text.includes(verb("settle"))) return false
    first ??= /:request:([0-9a-f-]{36})/.exec(text.slice(text.indexOf(verb("settle"))))?.[1]
    return first !== undefined && text.includes(first)
  }
}

layer(layerWired(), { excludeTestServices: true })("a settlement that is not delivered", (it) => {
  it.effect(
    "when it waits, then its account is refused and no other, and the budget is exact to the token in the end",
    () =>
      Effect.gen(function* () {
        const [{ redis }, backend, registry] = [yield* Wires, yield* Fake, yield* Registry]
        const [tight, other] = [yield* newKey(), yield* newKey()]
        const budget = cost + (38 + 2) + (counted + 1) + 15 * cost
        yield* registry.setBudgets(tight.prefix, { day: budget, total: budget })
        yield* modelSpeaks
        backend.always(short)
        for (const { secret } of [tight, other]) {
          assert.strictEqual((yield* eventually(ask(secret), ({ status }) => status === 200)).status, 200)
        }
        // One that holds nearly all, and one that gets the few tokens left and uses many more.
        const began = backend.requests.length
        const done = { prompt_eval_count: 38, eval_count: 2 }
        backend.script({
          does: "stream",
          lines: [wire.chat("x"), wire.chat("y"), wire.done("chat", done)],
          gapMs: 700
        })
        const large = yield* Effect.forkChild(ask(tight.secret, long), { startImmediately: true })
        yield* backend.until(() => backend.requests.length === began + 1)
        yield* redis.cutAfter(firstSettled(), "toServer", { drop: true, times: 1000 })
        backend.script({
          does: "stream",
          lines: [wire.chat("x"), wire.done("chat", { prompt_eval_count: counted, eval_count: 1 })],
          together: true
        })
        assert.strictEqual((yield* ask(tight.secret, long)).status, 200)
        assert.strictEqual((yield* Fiber.join(large)).status, 200)
        const asked = backend.requests.length
        for (let i = 0; i < 12; i++) {
          assert.strictEqual((yield* ask(tight.secret)).status, 503)
          yield* Effect.sleep("50 millis")
        }
        assert.strictEqual(backend.requests.length, asked)
        // The connection is cut at each try, for all: but in between the others are served.
        assert.strictEqual((yield* eventually(ask(other.secret), ({ status }) => status === 200)).status, 200)

        yield* redis.heal
        assert.strictEqual((yield* eventually(ask(tight.secret), ({ status }) => status === 200)).status, 200)
        const answers = yield* Effect.forEach(Array.from({ length: 20 }), () => ask(tight.secret))
        assert.strictEqual(answers.filter(({ status }) => status === 200).length, 14)
        const { difference, open } = yield* settledBooks(leaseS + 5)
        assert.deepStrictEqual({ difference, open }, { difference: 0, open: 0 })
        assert.strictEqual(yield* spentOf(tight.prefix), budget)
      })
  )
})
