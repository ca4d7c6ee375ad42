/** Markdown as it streams: looks, order, speed. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Console, Effect, Schema } from "effect"
import type { Page } from "playwright-core"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { Fake, newKey } from "../../test/support/Gateway.ts"
import {
  answered,
  answersOf,
  enterKey,
  evaluateWith,
  layerPlayground,
  openPlayground,
  say,
  shown
} from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

const sample = readFileSync(path.join(import.meta.dirname, "sample.md"), "utf8")

const texts = [
  sample,
  "a\n\n- x\n- y\n\n  more\n- z\n\n* other\n* list\n\n1. a\n2. b\n10. c\nlazy\n\nend",
  `| a | b |\n|---|---|\n${Array.from({ length: 30 }, (_, row) => `| ${row} | \`x\` |\n`).join("")}\nafter | table\n`,
  "para\n===\n\ntext\n---\n\n    indented\n\n<div>html</div>\n\n[ref]: https://example.com\nsee [ref]\n",
  "> a\n> b\n\n> c\n```\nunclosed fence\nmore",
  "```js\nconst a = `x\ny`\n```\n```py\n'''a\nb'''\n```",
  "- a\n  - b\n    - c\n\n      ```js\n      code\n      ```\n  - d\n- e",
  "\\(a_1\\)\n\n$$\nx_1\n$$\n\n\\[\ny_2\n\\]\nend",
  "\r\nwindows\r\n\r\n- lines\r\n- here\r\n"
]

/** Streams each text in pieces of each size, in the page itself. */
const streamed = `(texts) => {
  const whole = (text) => {
    const view = new module.MarkdownView()
    view.push(text)
    while (view.step(true));
    return view.node.outerHTML
  }
  const wrong = []
  for (const text of texts) for (const size of [1, 3, 7, 50]) {
    const view = new module.MarkdownView()
    let before = []
    for (let at = 0; at < text.length; at += size) {
      view.push(text.slice(at, at + size))
      while (view.step(false));
      const now = [...view.node.children]
      if (before.slice(0, -1).some((node, index) => now[index] !== node)) wrong.push("touched: " + text.slice(0, at))
      before = now
    }
    while (view.step(true));
    if (view.node.outerHTML !== whole(text)) wrong.push("differs: " + text.slice(0, 40))
  }
  return wrong
}`

/** About 10,000 tokens with everything that markdown has. */
const long = (): ReadonlyArray<string> => {
  const words: Array<string> = []
  while (words.length < 10_000) words.push(...(`${sample}\n\n`.match(/\s*\S+/g) ?? []))
  return words.slice(0, 10_000)
}

const Task = Schema.Struct({
  name: Schema.String,
  pid: Schema.Finite,
  tid: Schema.Finite,
  dur: Schema.optionalKey(Schema.Finite),
  tdur: Schema.optionalKey(Schema.Finite)
})
const decodeTasks = Schema.decodeUnknownSync(Schema.Array(Task))

/** What the thread that draws the page did meanwhile, in microseconds: on the clock and of the processor. */
const tasksOf = Effect.fnUntraced(function* <E, R>(page: Page, act: Effect.Effect<unknown, E, R>) {
  const session = yield* Effect.promise(() => page.context().newCDPSession(page))
  const events: Array<typeof Task.Type> = []
  session.on("Tracing.dataCollected", ({ value }) => events.push(...decodeTasks(value)))
  yield* Effect.promise(() =>
    session.send("Tracing.start", {
      transferMode: "ReportEvents",
      traceConfig: { includedCategories: ["toplevel", "devtools.timeline"] }
    })
  )
  yield* act
  yield* Effect.promise(async () => {
    const complete = new Promise<void>((resolve) => session.once("Tracing.tracingComplete", () => resolve()))
    await session.send("Tracing.end")
    await complete
  })
  // Only the page runs functions.
  const scripts = new Set(
    events.filter(({ name }) => name === "FunctionCall").map(({ pid, tid }) => `${pid} ${tid}`)
  )
  return events.filter(({ name, pid, tid }) => name.endsWith("RunTask") && scripts.has(`${pid} ${tid}`))
})

inWorld(layerPlayground())("the markdown of the playground", (test) => {
  test("when an answer streams, then it ends as if it had come at once, and no complete block is touched again", function* () {
    const { page, complaints } = yield* openPlayground()
    const wrong = yield* evaluateWith<ReadonlyArray<string>>(
      page,
      "MarkdownView.js",
      `(${streamed})(${JSON.stringify(texts)})`
    )
    assert.deepStrictEqual(wrong, [])
    assert.deepStrictEqual(complaints, [])
  })

  test("when an answer has markdown, then each kind has its element, and nothing is loaded", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground()
    const requested: Array<string> = []
    page.on("request", (request) => requested.push(new URL(request.url()).pathname))
    yield* enterKey(page, secret)
    fake.script({ does: "stream", lines: [wire.chat(sample), wire.done()] })
    yield* say(page, "Show everything")
    yield* answered(page, 1)
    const answer = answersOf(page).last()
    const counts = yield* Effect.promise(async () =>
      Object.fromEntries(
        await Promise.all(
          [
            ".h1",
            ".h2",
            "ol > li",
            "li li li",
            "li .fence",
            "blockquote li",
            "tbody tr",
            "hr",
            "del",
            ".t-k"
          ].map(async (selector) => [selector, await answer.locator(selector).count()] as const)
        )
      )
    )
    for (const [selector, count] of Object.entries(counts)) assert.isAbove(count, 0, selector)
    assert.strictEqual(yield* Effect.promise(() => answer.locator("img").count()), 0)
    const links = yield* Effect.promise(() =>
      page.evaluate<ReadonlyArray<string>>(
        `[...document.querySelectorAll(".md a")].map((link) => [link.href, link.rel, link.target].join(" "))`
      )
    )
    assert.deepStrictEqual(links, [
      "https://example.com/a noopener noreferrer _blank",
      "https://example.com/x.png noopener noreferrer _blank"
    ])
    const text = yield* Effect.promise(() => answer.innerText())
    for (const kept of [
      "\\(a_1^2 + b_1^2\\)",
      "$x_1 + x_2$",
      "<b>markup as text</b>",
      "☑ done",
      "javascript link x"
    ])
      assert.include(text, kept)
    assert.sameMembers([...new Set(requested)], ["/api/tags", "/v1/models", "/api/chat", "/api/version"])
    assert.deepStrictEqual(complaints, [])
  })

  test("when an answer has 10,000 tokens, then no task of the page takes 50 ms", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    fake.script({
      does: "stream",
      lines: [...long().map((word) => wire.chat(word)), wire.done("chat", { eval_count: 10_000 })]
    })
    const tasks = yield* tasksOf(page, Effect.andThen(say(page, "At length"), answered(page, 1)))
    const paint = yield* Effect.promise(() =>
      page.evaluate<number>(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0`)
    )
    const longest = (field: "tdur" | "dur") => Math.max(...tasks.map((task) => task[field] ?? 0)) / 1000
    yield* Console.log(
      `playground: 10,000 tokens, longest of ${tasks.length} tasks ${longest("tdur").toFixed(0)} ms of processor time, ${longest("dur").toFixed(0)} ms on the clock; first paint after ${paint.toFixed(0)} ms`
    )
    assert.isAbove(tasks.length, 20)
    // Processor time, because the tests share their machine with others.
    assert.isBelow(longest("tdur"), 50)
    assert.deepStrictEqual(complaints, [])
  })

  test("when an answer is one hostile block, then the page stays usable and shows its text", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page } = yield* openPlayground()
    yield* enterKey(page, secret)
    const hostile = [">".repeat(20_000), "_a".repeat(20_000), "[a](".repeat(10_000), "- ".repeat(10_000)]
    fake.script({
      does: "stream",
      lines: [...hostile.map((text) => wire.chat(`${text}\n\n`)), wire.chat("The end."), wire.done()]
    })
    yield* say(page, "Be hostile")
    yield* answered(page, 1)
    yield* shown(page, "The end.")
  })
})
