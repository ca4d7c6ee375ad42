/** What the headers of an answer say is on the page, in plain words. */
import { assert } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { Page } from "playwright-core"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { call, eventually, Fake, hello, newKey } from "../../test/support/Gateway.ts"
import {
  answered,
  answersOf,
  enterKey,
  layerPlayground,
  openPlayground,
  pressed,
  say,
  settingsOf
} from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

/** The answer to the chat that is sent meanwhile. */
const answerTo = Effect.fnUntraced(function* (page: Page, text: string) {
  const coming = yield* Effect.forkChild(
    Effect.promise(() =>
      page.waitForResponse((response) => /\/(?:api\/chat|v1\/chat\/completions)$/.test(response.url()))
    ),
    { startImmediately: true }
  )
  yield* say(page, text)
  return yield* Fiber.join(coming)
})

const lastText = (page: Page) => Effect.promise(() => answersOf(page).last().innerText())

const clipboard = (page: Page) =>
  Effect.promise(() => page.evaluate<string>("navigator.clipboard.readText()"))

const assertCopied = Effect.fnUntraced(function* (page: Page, id: string | undefined) {
  assert.match(id ?? "", /^[0-9a-f-]{36}$/)
  assert.strictEqual(yield* eventually(clipboard(page), (text) => text === id), id)
})

inWorld(layerPlayground({ BACKEND_CONTEXT_LENGTH: "100" }))(
  "what the playground says of an answer",
  (test) => {
    test("when a request fails, then one click copies its id, by mouse or keyboard", function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey({ rpm: 2 })
      const { page, context, complaints } = yield* openPlayground()
      yield* Effect.promise(() => context.grantPermissions(["clipboard-read", "clipboard-write"]))
      yield* enterKey(page, secret)
      fake.script({ does: "stream", lines: [wire.chat("Half an")], ends: "reset", gapMs: 50 })
      const broken = yield* answerTo(page, "One")
      yield* answered(page, 1)
      yield* pressed(page, "Copy request id")
      yield* assertCopied(page, broken.headers()["x-request-id"])
      yield* Effect.promise(() => page.getByText("Request id copied").first().waitFor({ state: "attached" }))

      const whole = yield* answerTo(page, "Two")
      yield* answered(page, 2)
      yield* pressed(page, `Copy request id ${whole.headers()["x-request-id"]}`)
      yield* assertCopied(page, whole.headers()["x-request-id"])

      const refused = yield* answerTo(page, "Three")
      assert.strictEqual(refused.status(), 429)
      yield* answered(page, 3)
      yield* Effect.promise(() =>
        page.getByRole("button", { name: "Copy request id", exact: true }).last().press("Enter")
      )
      yield* assertCopied(page, refused.headers()["x-request-id"])
      assert.deepStrictEqual(complaints, [])
    })

    test("when the gateway relaxes a schema or doubts the prompt, then the page says so in words", function* () {
      const { secret } = yield* newKey({ rpm: 60 })
      const { page, complaints } = yield* openPlayground()
      yield* enterKey(page, secret)
      const [cut, relaxed] = [
        /longer than the model can see/,
        /does not follow these parts of the schema: format\./
      ]
      const ask = Effect.fnUntraced(function* (text: string) {
        yield* pressed(page, "New chat")
        const answer = yield* answerTo(page, text)
        yield* answered(page, 1)
        return { headers: answer.headers(), text: yield* lastText(page) }
      })
      yield* settingsOf(page)
      yield* Effect.promise(() => page.locator("#options summary", { hasText: "Output" }).click())
      for (const surface of ["Native", "OpenAI"]) {
        yield* Effect.promise(() => page.locator("#options").getByText(surface, { exact: true }).click())
        const short = yield* ask("Short")
        assert.isUndefined(short.headers["x-prompt-truncated"])
        for (const words of [cut, relaxed]) assert.notMatch(short.text, words)

        const long = yield* ask("word ".repeat(300))
        assert.strictEqual(long.headers["x-prompt-truncated"], "likely")
        assert.match(long.text, cut)

        yield* Effect.promise(async () => {
          await page.getByLabel("Format").selectOption("schema")
          await page
            .locator("#schema")
            .fill('{"type":"object","properties":{"email":{"type":"string","format":"email"}}}')
        })
        const schema = yield* ask("JSON")
        assert.strictEqual(schema.headers["x-schema-relaxed"], "format")
        assert.match(schema.text, relaxed)
        yield* Effect.promise(() => page.getByLabel("Format").selectOption("text"))
      }
      assert.deepStrictEqual(complaints, [])
    })
  }
)

inWorld(layerPlayground({ BACKEND_MAX_CONCURRENT: "1" }))("what the playground says of the queue", (test) => {
  test("when a request waits in the queue, then the page says so meanwhile, and for how long after", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    // The first request after the start of a store waits for the other replicas.
    const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
    yield* eventually(chat, ({ status }) => status === 200)
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    const slow = { does: "stream", lines: [wire.chat("Hi"), wire.done()], gapMs: 1500 } as const
    fake.script(slow)
    const before = yield* Effect.forkChild(chat)
    yield* eventually(
      Effect.sync(() => fake.running),
      (count) => count === 1
    )
    const coming = yield* Effect.forkChild(answerTo(page, "Me too"), { startImmediately: true })
    const line = page.locator(".turn.running .waiting")
    yield* Effect.promise(() => line.getByText("in its queue").waitFor())
    const answer = yield* Fiber.join(coming)
    yield* answered(page, 1)
    const waitedMs = Number(answer.headers()["x-queue-wait-ms"])
    assert.isAtLeast(waitedMs, 1000)
    assert.include(yield* lastText(page), `${(waitedMs / 1000).toFixed(1)} s of it in the queue`)
    assert.strictEqual((yield* Fiber.join(before)).status, 200)

    // The model needs its time after the queue: the headers are there, the first word is not.
    yield* Effect.promise(() =>
      page.evaluate(`(() => {
            const real = window.fetch
            window.fetch = async (path, options) => {
              if (path !== "/api/chat") return real(path, options)
              const answer = await real(path, options)
              const body = new ReadableStream({
                start: (control) => void setTimeout(async () => {
                  control.enqueue(new Uint8Array(await answer.arrayBuffer()))
                  control.close()
                }, 3000)
              })
              const headers = new Headers(answer.headers)
              headers.set("x-queue-wait-ms", "2345")
              return new Response(body, { headers })
            }
          })()`)
    )
    yield* say(page, "Once more")
    yield* Effect.promise(() => line.getByText("2.3 s in the queue. The model reads the prompt.").waitFor())
    yield* answered(page, 2)
    assert.include(yield* lastText(page), "2.3 s of it in the queue")
    assert.deepStrictEqual(complaints, [])
  })
})
