/** What one does with a conversation beyond reading it. */
import { readFileSync } from "node:fs"
import { assert } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { tagsEntry } from "../../src/backend/demo/wire.ts"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, installed, newKey } from "../../test/support/Gateway.ts"
import {
  answered,
  answersOf,
  enterKey,
  evaluateWith,
  layerPlayground,
  openPlayground,
  pressed,
  promptOf,
  say,
  shown
} from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

const bodyBytes = 65_536

const decodeExport = Schema.decodeEffect(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Unknown)))

inWorld(layerPlayground({ MAX_REQUEST_BODY_BYTES: String(bodyBytes) }))("work in the playground", (test) => {
  test("when turns are copied, edited, asked again and deleted, then the next request has what is left", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page, context, complaints } = yield* openPlayground()
    yield* Effect.promise(() => context.grantPermissions(["clipboard-read", "clipboard-write"]))
    yield* enterKey(page, secret)
    fake.script({ does: "stream", lines: [wire.chat("A **bold** answer"), wire.done()] })
    yield* say(page, "First")
    yield* answered(page, 1)
    yield* pressed(page, "Copy answer")
    assert.strictEqual(
      yield* Effect.promise(() => page.evaluate<string>("navigator.clipboard.readText()")),
      "A **bold** answer"
    )
    yield* say(page, "Second")
    yield* answered(page, 2)
    yield* pressed(page, "Answer again")
    yield* answered(page, 2)
    const roles = () => JSON.stringify(fake.requests.at(-1)?.body?.["messages"])
    assert.strictEqual(
      roles(),
      JSON.stringify([
        { role: "user", content: "First" },
        { role: "assistant", content: "A **bold** answer" },
        { role: "user", content: "Second" }
      ])
    )
    yield* Effect.promise(() => page.getByRole("button", { name: "Edit and send again" }).last().click())
    yield* Effect.promise(() => page.getByLabel("Change the message").fill("Changed"))
    yield* Effect.promise(() => page.getByLabel("Change the message").press("Enter"))
    yield* answered(page, 2)
    assert.include(roles(), "Changed")
    assert.notInclude(roles(), "Second")
    yield* Effect.promise(() => page.getByRole("button", { name: "Delete this answer" }).first().click())
    yield* say(page, "Last")
    yield* answered(page, 2)
    assert.notInclude(roles(), "bold")
    assert.deepStrictEqual(complaints, [])
  })

  test("when a model can see, then images are pasted, dropped or chosen, and made to fit the request", function* () {
    const fake = yield* Fake
    fake.setModels([
      tagsEntry("m:latest", ["completion"]),
      tagsEntry("seer:latest", ["completion", "vision"])
    ])
    const { secret } = yield* newKey()
    yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes("vision"))
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    assert.isFalse(yield* Effect.promise(() => page.locator("#attach").isVisible()))
    const paste = (type: "paste" | "drop") =>
      Effect.promise(() =>
        page.evaluate(`(async () => {
              const canvas = document.createElement("canvas")
              canvas.width = 1600
              canvas.height = 1200
              const context = canvas.getContext("2d")
              const pixels = context.createImageData(1600, 1200)
              let seed = 1
              for (let i = 0; i < pixels.data.length; i += 1) pixels.data[i] = (seed = (seed * 16807) % 2147483647) % 256
              context.putImageData(pixels, 0, 0)
              const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"))
              const data = new DataTransfer()
              data.items.add(new File([blob], "noise.png", { type: "image/png" }))
              const options = { bubbles: true, cancelable: true }
              document.getElementById("prompt").dispatchEvent(${
                type === "paste"
                  ? 'new ClipboardEvent("paste", { ...options, clipboardData: data })'
                  : 'new DragEvent("drop", { ...options, dataTransfer: data })'
              })
              return blob.size
            })()`)
      )
    assert.isAbove(Number(yield* paste("paste")), 1_000_000)
    yield* Effect.promise(() => page.getByText("cannot see images").first().waitFor())
    yield* Effect.promise(() => page.getByLabel("Model", { exact: true }).selectOption("seer:latest"))
    yield* Effect.promise(() => page.locator("#attach").waitFor())
    yield* paste("paste")
    yield* Effect.promise(() => page.getByRole("button", { name: "Remove image 1" }).waitFor())
    yield* Effect.promise(() => page.getByRole("button", { name: "Remove image 1" }).click())
    yield* paste("drop")
    yield* Effect.promise(() => page.getByAltText("Image 1").waitFor())
    for (const [surface, field] of [
      ["Native", "images"],
      ["OpenAI", "images"]
    ] as const) {
      yield* Effect.promise(() => page.locator("#options").getByText(surface, { exact: true }).click())
      yield* say(page, "What is it?")
      yield* shown(page, "Hello world!")
      const sent = fake.requests.at(-1)
      assert.include(JSON.stringify(sent?.body?.["messages"]), `"${field}":["/9j/`, "a JPEG")
      assert.isBelow(sent?.raw.length ?? 0, bodyBytes)
      if (surface === "Native") yield* pressed(page, "New chat")
      if (surface === "Native")
        yield* Effect.promise(() =>
          page.locator("#file").setInputFiles({
            name: "pixel.png",
            mimeType: "image/png",
            buffer: Buffer.from(
              "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
              "base64"
            )
          })
        )
      if (surface === "Native") yield* Effect.promise(() => page.getByAltText("Image 1").waitFor())
    }
    yield* say(page, "x".repeat(bodyBytes))
    yield* shown(page, "The conversation is too large to send")
    assert.deepStrictEqual(complaints, [])
    fake.setModels(installed)
  })

  test("when JSON, a schema or tools are asked for, then both surfaces get them, and calls get results", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    yield* Effect.promise(() => page.locator("#options summary", { hasText: "Output" }).click())
    yield* Effect.promise(() => page.locator("#options summary", { hasText: "Tools" }).click())
    for (const surface of ["Native", "OpenAI"]) {
      yield* pressed(page, "New chat")
      yield* Effect.promise(() => page.locator("#options").getByText(surface, { exact: true }).click())
      yield* Effect.promise(() => page.getByLabel("Format").selectOption("schema"))
      yield* Effect.promise(() => page.locator("#tools").fill(""))
      fake.script({ does: "stream", lines: [wire.chat('{"title": "T", "steps": []}'), wire.done()] })
      yield* say(page, "As JSON")
      yield* Effect.promise(() => answersOf(page).last().locator(".fence .t-k").first().waitFor())
      yield* answered(page, 1)
      assert.include(JSON.stringify(fake.requests.at(-1)?.body?.["format"]), '"steps"')
      yield* Effect.promise(() => page.getByLabel("Format").selectOption("json"))
      yield* say(page, "Any JSON")
      yield* answered(page, 2)
      assert.strictEqual(fake.requests.at(-1)?.body?.["format"], "json")
      yield* Effect.promise(() => page.getByLabel("Format").selectOption("text"))
      yield* pressed(page, "Insert an example")
      fake.script({
        does: "stream",
        lines: [wire.toolCall("get_weather", { city: "Berlin" }, "call_7"), wire.done()]
      })
      yield* say(page, "Weather?")
      yield* answered(page, 3)
      assert.include(JSON.stringify(fake.requests.at(-1)?.body?.["tools"]), "get_weather")
      yield* Effect.promise(() => page.getByLabel("Result of get_weather").fill('{"temperature": 21}'))
      yield* pressed(page, "Send the result")
      yield* answered(page, 4)
      const messages = fake.requests.at(-1)?.body?.["messages"]
      const [call, result] = Array.isArray(messages) ? messages.slice(-2) : []
      assert.include(JSON.stringify(call), '"arguments":{"city":"Berlin"}')
      assert.deepInclude(result, {
        role: "tool",
        content: '{"temperature": 21}',
        tool_name: "get_weather"
      })
    }
    yield* Effect.promise(() => page.locator("#tools").fill("[{"))
    yield* say(page, "With broken tools")
    assert.strictEqual(yield* Effect.promise(() => page.evaluate("document.activeElement.id")), "tools")
    yield* Effect.promise(() => page.getByText("This is not JSON yet").waitFor())
    assert.deepStrictEqual(complaints, [])
  })

  test("when parameters are set, then each surface has its own, and reasoning is folded", function* () {
    const fake = yield* Fake
    fake.setModels([tagsEntry("m:latest", ["completion", "thinking"])])
    const { secret } = yield* newKey()
    yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes("thinking"))
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    yield* Effect.promise(async () => {
      await page.locator("#options summary", { hasText: "Parameters" }).click()
      await page.getByLabel("Top k").fill("40")
      await page.getByLabel("Max tokens").fill("77")
      await page.getByLabel("Stop texts").fill("END\nSTOP")
      await page.locator("#reasoning").selectOption("on")
    })
    fake.script({
      does: "stream",
      lines: [wire.thinking("Let me see."), wire.chat("Done."), wire.done()]
    })
    yield* say(page, "Think")
    yield* shown(page, "Done.")
    assert.deepInclude(fake.requests.at(-1)?.body?.["options"], {
      top_k: 40,
      num_predict: 77,
      stop: ["END", "STOP"]
    })
    assert.strictEqual(fake.requests.at(-1)?.body?.["think"], true)
    yield* Effect.promise(async () => {
      assert.isFalse(await page.getByText("Let me see.").isVisible())
      await page.locator(".reasoning summary").click()
      assert.isTrue(await page.getByText("Let me see.").isVisible())
      await page.locator("#options").getByText("OpenAI", { exact: true }).click()
      assert.strictEqual(await page.getByLabel("Top k").count(), 0)
      assert.strictEqual(await page.getByLabel("Max tokens").inputValue(), "77")
    })
    yield* say(page, "Again")
    yield* answered(page, 2)
    assert.deepInclude(fake.requests.at(-1)?.body?.["options"], { num_predict: 77 })
    assert.deepStrictEqual(complaints, [])
    fake.setModels(installed)
  })

  test("when a conversation is exported, then the file has it; when the theme is changed, then it is all that stays", function* () {
    const { url } = yield* Gateway
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground({ colorScheme: "light" })
    yield* enterKey(page, secret)
    yield* Effect.promise(() => page.getByLabel("System prompt").fill("Be brief."))
    yield* say(page, "Hello")
    yield* answered(page, 1)
    const saved = (name: string) =>
      Effect.promise(async () => {
        const coming = page.waitForEvent("download")
        await page.getByRole("button", { name }).click()
        const download = await coming
        return readFileSync(await download.path(), "utf8")
      })
    const markdown = yield* saved("Export Markdown")
    for (const part of [
      "# Conversation with",
      "## System\n\nBe brief.",
      "## You\n\nHello",
      "## Assistant\n\nHello world!"
    ])
      assert.include(markdown, part)
    const json = yield* decodeExport(yield* saved("Export JSON"))
    assert.deepInclude(json, { system: "Be brief." })
    assert.notInclude(JSON.stringify(json) + markdown, secret)
    yield* Effect.promise(() => page.getByRole("button", { name: "Dark theme" }).click())
    yield* Effect.promise(() => page.reload())
    const after = yield* Effect.promise(() =>
      page.evaluate<string>(
        `JSON.stringify([document.documentElement.style.colorScheme, { ...localStorage }, { ...sessionStorage }, document.querySelectorAll(".turn").length, location.href])`
      )
    )
    assert.strictEqual(
      after,
      JSON.stringify(["dark", { "tollgate-theme": "dark" }, {}, 0, `${url}/playground`])
    )
    assert.deepStrictEqual(complaints, [])
  })

  test("when a budget is almost spent, then a fresh page shows how much, and when it starts again", function* () {
    const registry = yield* Registry
    const { secret, prefix } = yield* newKey({ rpm: 60 })
    const { page } = yield* openPlayground()
    const seen = Effect.fnUntraced(function* (limit: number) {
      yield* registry.changeKey(prefix, { budgetDaily: limit })
      yield* eventually(
        call("/api/version", { secret }),
        ({ headers }) => headers.get("x-budget-tokens-limit") === String(limit)
      )
      yield* Effect.promise(() => page.reload())
      yield* enterKey(page, secret)
      return yield* Effect.promise(() => page.locator("#meter-budget").innerText())
    })
    // One answer of the fake model costs 10 tokens.
    yield* call("/api/chat", {
      secret,
      body: { model: "m", messages: [{ role: "user", content: "x" }] }
    })
    assert.match(yield* seen(100), /10 of 100[^]*90 left, resets in \d+ (h|min|s)/)
    yield* seen(12)
    assert.include(
      yield* Effect.promise(() => page.locator("#tightest").innerText()),
      "83 % of today's budget used"
    )
    yield* seen(10)
    const width = yield* Effect.promise(() =>
      page.evaluate<string>(`document.querySelector("#meter-budget .bar i").style.width`)
    )
    assert.strictEqual(width, "100%")
  })

  test("when the model server is slow or lists nothing, then the page says so in plain words", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page } = yield* openPlayground()
    yield* enterKey(page, secret)
    fake.script({ does: "hang" })
    yield* say(page, "Wait")
    yield* Effect.promise(() => page.getByText(/Waiting for the model server.* [1-9]\d* s/).waitFor())
    yield* Effect.promise(() => page.keyboard.press("Escape"))
    yield* shown(page, "stopped")
    const { secret: poor } = yield* newKey({ models: [] })
    yield* Effect.promise(() => page.getByLabel("API key").fill(poor))
    yield* Effect.promise(() => page.getByText("no model that chats is open to it").waitFor())
    yield* Effect.promise(() => page.getByRole("button", { name: "Look again" }).waitFor())
    assert.strictEqual(yield* Effect.promise(() => promptOf(page).inputValue()), "")
    yield* Effect.promise(() =>
      page.route("**/api/tags", (route) =>
        route.fulfill({ json: { models: [] }, headers: { "x-model-list": "expired" } })
      )
    )
    yield* pressed(page, "Look again")
    yield* Effect.promise(() => page.getByText("no current list of models").waitFor())
    const facts = yield* evaluateWith<string>(
      page,
      "turns.js",
      `module.factsLine({ tokensOut: 2, pieces: 2, firstMs: 900, allMs: 1000, queuedMs: 700, ended: "stop" }).textContent`
    )
    assert.include(facts, "first token 0.9 s")
    assert.include(facts, "0.7 s of it in the queue")
  })
})
