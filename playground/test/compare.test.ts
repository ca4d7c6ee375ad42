/** What the page knows of models and keys before a question, two models for one prompt, and what is not lost. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { tagsEntry } from "../../src/backend/demo/wire.ts"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { call, eventually, Fake, installed, newKey } from "../../test/support/Gateway.ts"
import { answered, enterKey, layerPlayground, openPlayground, pressed, say, shown } from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

inWorld(layerPlayground({ BACKEND_CONTEXT_LENGTH: "4096" }))(
  "the playground before and beside an answer",
  (test) => {
    test("when a key lacks a scope, then it is told before a request is refused", function* () {
      const { secret } = yield* newKey({ scopes: ["embeddings"] })
      const { page, complaints } = yield* openPlayground()
      yield* Effect.promise(async () => {
        await page.getByLabel("API key").fill(secret)
        await page.getByText("it may not chat: its scopes are embeddings").waitFor()
        assert.isTrue(await page.locator("#model").isDisabled())
      })
      assert.deepStrictEqual(complaints, [])
    })

    test("when a model is chosen, then its size, window, sight and tools are below the list, whole and once", function* () {
      const fake = yield* Fake
      fake.setModels([tagsEntry("seer:latest", ["completion", "vision", "tools"])])
      const { secret } = yield* newKey()
      yield* eventually(call("/v1/models", { secret }), ({ text }) => /seer.*context_length/.test(text))
      const { page } = yield* openPlayground()
      yield* enterKey(page, secret)
      const [option, facts] = yield* Effect.promise(() =>
        Promise.all([
          page.locator("#model option").first().innerText(),
          page.locator("#model-facts").innerText()
        ])
      )
      assert.strictEqual(option, "seer:latest")
      assert.strictEqual(facts, "1M · 2 MB · window 4k · vision · tools")
      yield* Effect.promise(() => page.setViewportSize({ width: 320, height: 640 }))
      assert.isTrue(yield* Effect.promise(() => page.locator("#model-facts").isVisible()))
      fake.setModels(installed)
      yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes("other"))
    })

    test("when two models are chosen, then one prompt is answered by both side by side, and each goes on from its own words", function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey({ concurrent: 1 })
      const { page, complaints } = yield* openPlayground({ viewport: { width: 1360, height: 860 } })
      yield* enterKey(page, secret)
      yield* Effect.promise(async () => {
        await page.locator("#model").selectOption("m:latest")
        await page.locator("#second").selectOption("other:latest")
        assert.include(await page.locator("#second-facts").innerText(), "1M · 2 MB")
      })
      fake.script(
        { does: "stream", lines: [wire.chat("From one"), wire.done()] },
        { does: "stream", lines: [wire.chat("From two"), wire.done()] }
      )
      yield* say(page, "Hello")
      yield* answered(page, 2)
      assert.deepStrictEqual(yield* Effect.promise(() => page.locator(".beside .turn .md").allInnerTexts()), [
        "From one",
        "From two"
      ])
      const tops = yield* Effect.promise(() =>
        page.evaluate<ReadonlyArray<number>>(
          `[...document.querySelectorAll(".beside .turn")].map((one) => one.getBoundingClientRect().top)`
        )
      )
      assert.strictEqual(tops[0], tops[1])
      yield* say(page, "Go on")
      yield* answered(page, 4)
      const sent = fake.requests.slice(-2).map(({ body }) => [body?.["model"], body?.["messages"]])
      const told = (model: string, content: string) => [
        model,
        [
          { role: "user", content: "Hello" },
          { role: "assistant", content },
          { role: "user", content: "Go on" }
        ]
      ]
      assert.deepStrictEqual(sent, [told("m:latest", "From one"), told("other:latest", "From two")])
      // A failure of one is told in its place, and asking again asks both.
      fake.script(
        { does: "stream", lines: [wire.chat("Fine"), wire.done()] },
        { does: "stream", lines: [], ends: "reset" }
      )
      yield* say(page, "Once more")
      yield* answered(page, 6)
      yield* Effect.promise(() => page.locator(".beside").last().locator(".problem").waitFor())
      yield* pressed(page, "Try again")
      yield* answered(page, 6)
      assert.strictEqual(yield* Effect.promise(() => page.locator(".problem").count()), 0)
      assert.deepStrictEqual(complaints, [])
    })

    test("when a budget cuts an answer short, then the page says that it was the budget", function* () {
      const [fake, registry] = [yield* Fake, yield* Registry]
      const { secret, prefix } = yield* newKey()
      yield* registry.changeKey(prefix, { budgetDaily: 40 })
      yield* eventually(call("/api/version", { secret }), ({ headers }) => headers.has("x-budget-period"))
      const { page } = yield* openPlayground()
      yield* enterKey(page, secret)
      const words = Array.from({ length: 100 }, () => wire.chat("word "))
      fake.script({ does: "stream", lines: [...words, wire.done("chat", { eval_count: 100 })], gapMs: 5 })
      yield* say(page, "Hello")
      yield* shown(page, "stopped at the budget")
    })

    test("when the page is left with a conversation, then the browser asks", function* () {
      const { secret } = yield* newKey()
      const { page } = yield* openPlayground()
      const asked: Array<string> = []
      page.on("dialog", (dialog) => {
        asked.push(dialog.type())
        void dialog.accept()
      })
      yield* enterKey(page, secret)
      yield* Effect.promise(() => page.reload())
      assert.deepStrictEqual(asked, [])
      yield* enterKey(page, secret)
      yield* say(page, "Hello")
      yield* answered(page, 1)
      yield* Effect.promise(() => page.reload())
      assert.deepStrictEqual(asked, ["beforeunload"])
    })

    test("when a request fails on a phone, then the whole box of the error is above the composer", function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey()
      const { page } = yield* openPlayground({ viewport: { width: 390, height: 600 }, hasTouch: true })
      yield* enterKey(page, secret)
      const long = Array.from({ length: 30 }, () => wire.chat("A paragraph.\n\n"))
      fake.script({ does: "stream", lines: [...long, wire.done()] })
      yield* say(page, "Much")
      yield* answered(page, 1)
      // The facts, which come last, are in view.
      const below = `(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight)(document.getElementById("log"))`
      assert.isAtMost(yield* Effect.promise(() => page.evaluate<number>(below)), 1)
      yield* Effect.promise(() => page.evaluate(`document.getElementById("log").scrollTop = 0`))
      fake.script({ does: "stream", lines: [], ends: "reset" })
      yield* say(page, "Break off")
      yield* answered(page, 2)
      const [box, composer] = yield* Effect.promise(() =>
        page.evaluate<readonly [number, number]>(
          `[document.querySelector(".problem").getBoundingClientRect().bottom, document.getElementById("composer").getBoundingClientRect().top]`
        )
      )
      assert.isAtMost(box, composer)
    })
  }
)
