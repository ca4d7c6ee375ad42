import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { Fake, Gateway, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, chat, generate, json, lines } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"
import { posting } from "../../support/posting.ts"

const stream = (all: Extract<Behaviour, { does: "stream" }>["lines"], more: object = {}): Behaviour => ({
  does: "stream",
  lines: all,
  ...more
})

/** An answer may be so large that it fills the kernel's buffers. */
inWorld(layerGateway({ NUM_PREDICT_CAP: "1000000" }))("native streaming", (test) => {
  test("when a client does not read, then the backend is done at its own speed, and no frame is lost", function* () {
    const [{ url }, backend] = [yield* Gateway, yield* Fake]
    const { secret } = yield* newKey({ tpm: 1_000_000_000 })
    // More than the buffers of the kernel take.
    const words = 200_000
    const word = `${JSON.stringify(fake.chat("x"))}\n`
    const final = JSON.stringify(fake.done("chat", { eval_count: words }))
    backend.script(stream([...Array.from({ length: words / 100 }, () => word.repeat(100)), final]))
    const calls = backend.requests.length
    const response = yield* Effect.promise(() => fetch(new URL("/api/chat", url), posting(secret, chat())))
    assert.strictEqual(response.status, 200)
    yield* backend.until(() => backend.running === 0 && backend.requests.length > calls)
    const frames = (yield* Effect.promise(() => response.text())).trimEnd().split("\n")
    assert.lengthOf(frames, words + 1)
    assert.include(frames.at(-1), `"eval_count":${words}`)
  })

  test("when generate gives a context, then it is sealed, and only its own key can go on with it", function* () {
    const backend = yield* Fake
    const ids = [1, 2, 3, 12_345]
    const script = () => backend.script(stream([fake.generate("a"), fake.done("generate", { context: ids })]))
    const { secret } = yield* newKey()
    script()
    const streamed = lines(yield* ask("/api/generate", generate(), { secret })).at(-1).context
    script()
    const whole = json(yield* ask("/api/generate", generate({ stream: false }), { secret })).context
    for (const context of [streamed, whole]) {
      assert.notInclude(JSON.stringify(context), "12345")
      const next = yield* ask("/api/generate", generate({ context }), { secret })
      assert.deepStrictEqual(next.sent?.["context"], ids)
      assertRefused(
        yield* ask("/api/generate", generate({ context })),
        "context: expected what an earlier answer"
      )
    }
    for (const context of [[7], ids, [99_999_999], streamed.slice(1)]) {
      assertRefused(yield* ask("/api/generate", generate({ context }), { secret }), "context")
    }
  })
})
