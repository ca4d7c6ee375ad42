/** Every state at every width in both themes, for eyes, keyboards and screen readers. */
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { BrowserContextOptions, Page } from "playwright-core"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { Fake, newKey } from "../../test/support/Gateway.ts"
import {
  answered,
  enterKey,
  layerPlayground,
  openPlayground,
  promptOf,
  say,
  settingsOf
} from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
const sample = readFileSync(new URL("sample.md", import.meta.url), "utf8")

/** What axe finds at any level, which controls are smaller than 44 px, and whether anything is cut off sideways. */
const layoutFaults = `(async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] })
  const faults = violations.map(({ id, impact, nodes }) => id + " (" + impact + "): " + nodes.map(({ target }) => target.join(" ")).join(", "))
  const top = document.querySelector("dialog:modal") ?? document
  for (const control of top.querySelectorAll("button, input:not([type=radio]), select, textarea, summary, .choice label")) {
    if (!control.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue
    const { width, height } = control.getBoundingClientRect()
    if (width > 1 && (width < 43.9 || height < 43.9)) faults.push("small: " + (control.id || control.textContent) + " " + width + " × " + height)
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("cut off sideways")
  // On a phone no part of a dialog scrolls sideways.
  if (innerWidth < 560) for (const part of document.querySelectorAll("dialog.code:modal, dialog.code:modal *"))
    if (part.clientWidth > 1 && part.scrollWidth > part.clientWidth + 1) faults.push("scrolls sideways: " + (part.id || part.className))
  return faults
})()`

/** The other theme has the same document and the same layout: only its colours can be at fault. */
const colourFaults = `(async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"], runOnly: { type: "rule", values: ["color-contrast", "link-in-text-block"] } })
  return violations.map(({ id, nodes }) => id + ": " + nodes.map(({ target }) => target.join(" ")).join(", "))
})()`

/** So that no colour is on its way from one theme to the other. */
const endTransitions = `for (const one of document.getAnimations()) if (one instanceof CSSTransition) one.finish()`

/** Colours are the same at every width, so the dark theme is looked at once. */
const faultsOf = (page: Page, state: string, inDark: boolean) =>
  Effect.promise(async () => {
    if (!(await page.evaluate<boolean>(`"axe" in window`))) await page.evaluate(axe)
    const find = async (theme: "light" | "dark", faults: string) => {
      await page.emulateMedia({ colorScheme: theme })
      await page.evaluate(endTransitions)
      const found = await page.evaluate<ReadonlyArray<string>>(faults)
      return found.map((fault) => `${state}, ${theme}: ${fault}`)
    }
    return [...(inDark ? await find("dark", colourFaults) : []), ...(await find("light", layoutFaults))]
  })

/** Each is walked once: widths on both sides of each step of the layout, and the narrow window of a large zoom. */
const sizes = [
  ["1360", { viewport: { width: 1360, height: 860 } }],
  ["390", { viewport: { width: 390, height: 844 }, hasTouch: true }],
  ["320", { viewport: { width: 320, height: 640 }, hasTouch: true }],
  ["680 (1360 at 200 %)", { viewport: { width: 680, height: 384 } }]
] as const satisfies ReadonlyArray<readonly [string, BrowserContextOptions]>

/** Every place that a person can get to. */
const walk = Effect.fnUntraced(function* (page: Page, inDark: boolean) {
  const [fake, registry] = [yield* Fake, yield* Registry]
  const { secret, prefix } = yield* newKey({ rpm: 60, tpm: 20_000 })
  yield* registry.changeKey(prefix, { budgetMonthly: 50_000 })
  const faults: Array<string> = []
  const look = (state: string) =>
    Effect.map(faultsOf(page, state, inDark), (found) => {
      faults.push(...found)
    })
  yield* look("empty")
  yield* Effect.promise(() => page.getByLabel("API key").fill(`tg_${"x".repeat(41)}`))
  yield* Effect.promise(() => page.locator("#key-note.bad").waitFor())
  yield* look("a wrong key")
  yield* enterKey(page, secret)
  yield* look("a key")
  fake.script({ does: "stream", lines: [wire.chat("So far, so **good**.")], ends: "hang" })
  yield* say(page, "A word that is long: " + "a".repeat(120))
  yield* Effect.promise(() => page.locator(".turn.running .md").waitFor())
  yield* look("an answer that runs")
  yield* Effect.promise(() => page.getByRole("button", { name: "Stop" }).click())
  yield* answered(page, 1)
  fake.script({
    does: "stream",
    lines: [
      wire.thinking("Let me see."),
      wire.chat(sample),
      wire.toolCall("get_weather", { city: "Berlin" }),
      wire.done()
    ]
  })
  yield* say(page, "Everything")
  yield* answered(page, 2)
  yield* look("an answer with everything")
  fake.script({ does: "stream", lines: [wire.chat("Half")], ends: "reset", gapMs: 50 })
  yield* say(page, "Break off")
  yield* answered(page, 3)
  yield* look("an error")
  yield* Effect.promise(() => page.getByRole("button", { name: "Edit and send again" }).first().click())
  yield* look("a message that is edited")
  yield* Effect.promise(() => page.keyboard.press("Escape"))
  yield* Effect.promise(() => page.locator("#show-code").click())
  yield* look("the code")
  yield* Effect.promise(() => page.keyboard.press("Escape"))
  yield* settingsOf(page)
  yield* Effect.promise(() => page.locator("#show-connect").click())
  yield* look("the settings of programs")
  yield* Effect.promise(async () => {
    await page.keyboard.press("Escape")
    for (const group of ["Use by day", "Parameters", "Output", "Tools"])
      await page.locator("#options summary", { hasText: group }).click()
    await page.getByLabel("Format").selectOption("schema")
    await page.locator("#schema").fill("{")
    await page.getByRole("button", { name: "Insert an example" }).click()
    await page.locator("#uses table").waitFor()
  })
  yield* look("the settings")
  yield* Effect.promise(async () => {
    await page.locator("#tools").fill("")
    await page.getByLabel("Format").selectOption("text")
    await page.locator("#second").selectOption({ index: 1 })
    await page.keyboard.press("Escape")
  })
  yield* say(page, "Two models")
  yield* answered(page, 5)
  yield* look("two models side by side")
  return faults
})

inWorld(layerPlayground())("the playground for everybody", (test) => {
  for (const [name, options] of sizes) {
    test(`when it is ${name} wide, then axe finds nothing in any state of either theme, targets are 44 px, and nothing is cut off`, function* () {
      const { page, complaints } = yield* openPlayground(options)
      assert.deepStrictEqual(yield* walk(page, name === sizes[0][0]), [])
      assert.deepStrictEqual(complaints, [])
    })
  }

  test("when only the keyboard is used, then everything works, and the focus returns where it was", function* () {
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground({ viewport: { width: 1360, height: 860 } })
    const focused = () =>
      page.evaluate<string>(
        `document.activeElement.id || document.activeElement.getAttribute("aria-label") || document.activeElement.textContent`
      )
    const tabTo = async (name: string, back = false) => {
      for (let step = 0; step < 60 && (await focused()) !== name; step += 1)
        await page.keyboard.press(back ? "Shift+Tab" : "Tab")
      assert.strictEqual(await focused(), name)
    }
    yield* Effect.promise(async () => {
      assert.strictEqual(await focused(), "key")
      await page.keyboard.insertText(secret)
      await page.locator("#key-note.good").waitFor()
      await tabTo("prompt")
      await page.keyboard.type("One")
      await page.keyboard.press("Shift+Enter")
      await page.keyboard.type("Two")
      await page.keyboard.press("Enter")
    })
    yield* answered(page, 1)
    yield* Effect.promise(async () => {
      assert.strictEqual(await focused(), "prompt")
      assert.strictEqual(await page.locator(".bubble .text").innerText(), "One\nTwo")
      await tabTo("show-code", true)
      await page.keyboard.press("Enter")
      await tabTo("tab-curl")
      await page.keyboard.press("ArrowRight")
      assert.strictEqual(await focused(), "tab-python")
      assert.include(await page.locator("#snippet").innerText(), "import os")
      await page.keyboard.press("End")
      assert.strictEqual(await focused(), "tab-javascript")
      await page.keyboard.press("ArrowRight")
      assert.strictEqual(await focused(), "tab-curl")
      await page.keyboard.press("Tab")
      assert.strictEqual(await focused(), "copy-code")
      await page.keyboard.press("Escape")
      assert.strictEqual(await focused(), "show-code")
      await tabTo("Edit and send again")
      await page.keyboard.press("Enter")
      assert.strictEqual(await focused(), "Change the message")
      await page.keyboard.press("Escape")
      assert.strictEqual(await focused(), "Edit and send again")
      await page.keyboard.press("Enter")
      await page.keyboard.press("ControlOrMeta+a")
      await page.keyboard.type("Three")
      await page.keyboard.press("Enter")
    })
    yield* answered(page, 1)
    yield* Effect.promise(async () => {
      assert.strictEqual(await page.locator(".bubble .text").innerText(), "Three")
      await tabTo("Answer again", true)
      await page.keyboard.press("Enter")
    })
    yield* answered(page, 1)
    yield* Effect.promise(async () => {
      await tabTo("Delete this answer", true)
      await page.keyboard.press("Enter")
      assert.strictEqual(await focused(), "Delete this message")
      await page.keyboard.press("Enter")
      assert.strictEqual(await focused(), "prompt")
      assert.isTrue(await page.locator("#empty").isVisible())
    })
    assert.deepStrictEqual(complaints, [])
  })

  test("when a short answer streams, then a screen reader is told each sentence once at most", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page } = yield* openPlayground()
    yield* enterKey(page, secret)
    yield* Effect.promise(() =>
      page.evaluate(
        `window.told = []; new MutationObserver(() => window.told.push(document.getElementById("status").textContent)).observe(document.getElementById("status"), { childList: true, characterData: true, subtree: true })`
      )
    )
    const words = "The first sentence is here. The second one follows it. And this is the third.".match(
      /\s*\S+/g
    )
    fake.script({
      does: "stream",
      lines: [...(words ?? []).map((word) => wire.chat(word)), wire.done()],
      gapMs: 60
    })
    yield* say(page, "Hello")
    yield* answered(page, 1)
    const told = yield* Effect.promise(() => page.evaluate<ReadonlyArray<string>>("window.told"))
    // That it was sent, three sentences at most, and how it ended.
    assert.isAtMost(told.length, 5, told.join(" | "))
    const all = told.join(" ")
    for (const sentence of [
      "The first sentence is here.",
      "The second one follows it.",
      "And this is the third."
    ])
      assert.strictEqual(all.split(sentence).length, 2, sentence)
    assert.match(all, /End of the answer\.$/)
    // Nothing else on the page speaks while an answer comes.
    const others = yield* Effect.promise(() =>
      page.locator("#log [aria-live], #log [role=log], #log [role=status], #log [role=alert]").count()
    )
    assert.strictEqual(others, 0)
  })

  test("when motion is unwanted, then nothing moves; when letters are twice as large, then nothing is cut off", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page } = yield* openPlayground({
      reducedMotion: "reduce",
      viewport: { width: 1360, height: 860 }
    })
    yield* enterKey(page, secret)
    fake.script({ does: "hang" })
    yield* say(page, "Wait")
    yield* Effect.promise(() => page.locator(".waiting i").first().waitFor())
    assert.deepStrictEqual(
      yield* Effect.promise(() => page.evaluate("document.getAnimations().map(String)")),
      []
    )
    yield* Effect.promise(() => page.keyboard.press("Escape"))
    const sideways = yield* Effect.promise(() =>
      page.evaluate<number>(
        `document.documentElement.style.fontSize = "200%", document.documentElement.scrollWidth - innerWidth`
      )
    )
    assert.isAtMost(sideways, 0)
  })

  test("when the screen is a phone's, then key, model and composer come first, and the rest is in a sheet", function* () {
    const registry = yield* Registry
    const { secret, prefix } = yield* newKey()
    yield* registry.changeKey(prefix, { budgetDaily: 1000 })
    const { page } = yield* openPlayground({
      viewport: { width: 390, height: 844 },
      hasTouch: true,
      isMobile: true
    })
    const inView = (selector: string) =>
      page.evaluate<boolean>(
        `(({ top, bottom, width }) => width > 0 && top >= 0 && bottom <= innerHeight)(document.querySelector("${selector}").getBoundingClientRect())`
      )
    for (const selector of ["#key", "#model", "#prompt", "#send"])
      assert.isTrue(yield* Effect.promise(() => inView(selector)), selector)
    assert.isFalse(yield* Effect.promise(() => page.locator(".keys").isVisible()))
    assert.isFalse(yield* Effect.promise(() => page.getByLabel("System prompt").isVisible()))
    yield* enterKey(page, secret)
    yield* Effect.promise(async () => {
      const chip = page.locator("#chip")
      await chip.waitFor()
      assert.match(await chip.innerText(), /1,000 tokens of budget left/)
      assert.isTrue(await inView("#chip"))
      assert.isFalse(await page.locator("#key").isVisible())
      await chip.click()
      await page.getByLabel("System prompt").fill("Be brief.")
      await page.keyboard.press("Escape")
      assert.strictEqual(await page.evaluate("document.activeElement.id"), "chip")
      await page.getByRole("button", { name: "Change the key" }).click()
      assert.isTrue(await page.locator("#key").isVisible())
      await page.locator("#show-code").click()
      assert.strictEqual(
        await page.evaluate<number>(`document.getElementById("code").getBoundingClientRect().width`),
        390
      )
      assert.isTrue(await inView("#snippet"))
    })
    assert.strictEqual(yield* Effect.promise(() => promptOf(page).count()), 1)
  })
})
