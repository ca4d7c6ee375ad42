import { uncounted } from "../../../src/memory/MemoryLedger.ts"
import { assert, it } from "@effect/vitest"
import { Effect, Stream, Struct } from "effect"
import { describe } from "vitest"
import { Backend } from "../../../src/backend/Backend.ts"
import { makeDemoBackend } from "../../../src/backend/demo/DemoBackend.ts"
import { replyTo } from "../../../src/backend/demo/answers.ts"
import { ideas } from "../../../src/backend/demo/ideas.ts"
import { makePage } from "../../../src/http/playground.ts"
import { callOf, permitFor } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"
import { layerPatient } from "./calls.ts"

const post = (url: string, body: object) =>
  Effect.promise(async (signal) => {
    const response = await fetch(url, { method: "POST", body: JSON.stringify(body), signal })
    const answer: unknown = await response.json()
    return { status: response.status, answer }
  })

const test = testWith(it.live)

describe("the demo backend", () => {
  test("when it is used as a backend, then it lists models, streams words with exact counts, and keeps to the bound", function* () {
    const demo = yield* makeDemoBackend
    yield* Effect.gen(function* () {
      const backend = yield* Backend
      yield* backend.ping
      const models = yield* backend.models
      assert.deepStrictEqual(
        models.map(({ name }) => name),
        ["demo-chat:latest", "demo-embed:latest"]
      )
      const body = { messages: [{ role: "user", content: "marmalade" }] }
      const full = yield* Effect.flatMap(
        backend.forward(permitFor("demo-chat:latest", callOf({ body })), uncounted),
        (answer) => Stream.runCollect(answer)
      )
      assert.include(full.map(({ text }) => text).join(""), "“marmalade”")
      assert.deepInclude(full.at(-1), { doneReason: "stop", evalCount: full.length - 1 })
      const cut = yield* Effect.flatMap(
        backend.forward(permitFor("demo-chat:latest", callOf({ body }, 3)), uncounted),
        (answer) => Stream.runCollect(answer)
      )
      const embedding = callOf({ kind: "embed", body: { input: ["a", ""] } }, 0)
      const { vectors } = yield* backend.embed(permitFor("demo-embed:latest", embedding), uncounted)
      assert.deepStrictEqual(
        vectors.map((vector) => JSON.parse(String(vector)).length),
        [64, 64]
      )
      const shown = yield* backend.show(permitFor("demo-chat:latest"), uncounted)
      assert.deepInclude(shown, { capabilities: ["completion"] })
      assert.strictEqual(cut.length, 4)
      assert.deepInclude(cut.at(-1), { doneReason: "length", evalCount: 3 })
    }).pipe(Effect.scoped, Effect.provide(layerPatient(demo.url)))
  })

  test("when a request is not streamed or not allowed, then it answers as the real server does", function* () {
    const { url } = yield* makeDemoBackend
    const whole = yield* post(`${url}/api/generate`, { model: "DEMO-chat", prompt: "hi", stream: false })
    assert.deepInclude(whole.answer, { done: true, done_reason: "stop" })
    assert.strictEqual((yield* post(`${url}/api/chat`, { model: "nope" })).status, 404)
    assert.strictEqual((yield* post(`${url}/api/chat`, { model: "demo-embed", messages: [] })).status, 400)
    const loaded = yield* post(`${url}/api/chat`, { model: "demo-chat", messages: [] })
    assert.deepInclude(loaded.answer, { done: true, done_reason: "load" })
  })
})

describe("the ideas of the playground", () => {
  const { html } = makePage({ maxRequestBodyBytes: 1000, numPredictCap: 1, extraSurfaces: new Set() })
  const offered = /<div class="ideas">([^]*?)<\/div>/.exec(html)?.[1] ?? ""
  const prompts = [...offered.matchAll(/<span>(.*?)<\/span>/g)].map((match) => match[1] ?? "")
  const isEcho = (answer: string) => answer.startsWith("You said: ")

  /** What makes an answer the one that its idea promises. */
  const forms: Readonly<Record<keyof typeof ideas, RegExp>> = {
    table: /^\|.*\|\n\|[:|-]+\|\n(?:\|.*\|\n){3}/m,
    code: /^```python\n[^]+^def quicksort\([^]+^```$/m,
    poem: /^### .+\n\n(?:.+ {2}\n){3}.+\n\n(?:.+ {2}\n){3}.+$/m
  }

  it("when the page is read, then it offers the ideas of the demo model and no others", () => {
    assert.deepStrictEqual(
      prompts,
      Object.values(ideas).map(({ prompt }) => prompt)
    )
    assert.lengthOf(prompts, 3)
  })

  for (const idea of Struct.keys(ideas))
    it(`when the page offers a ${idea}, then the demo model's written answer has one`, () => {
      const { prompt } = ideas[idea]
      const answer = replyTo(prompt)
      assert.isFalse(isEcho(answer))
      assert.match(answer, forms[idea])
      for (const [other, form] of Object.entries(forms)) if (other !== idea) assert.notMatch(answer, form)
      assert.strictEqual(replyTo(` ${prompt.toUpperCase()}?\n`), answer)
    })

  it("when anything else is asked, then the demo model repeats it and says what it is", () => {
    for (const text of ["hello", `${ideas.code.prompt}, please`, "", "constructor"]) {
      assert.isTrue(isEcho(replyTo(text)), text)
      assert.include(replyTo(text), `“${text}”`)
    }
  })
})
