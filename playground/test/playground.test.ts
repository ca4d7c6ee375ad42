import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, newKey } from "../../test/support/Gateway.ts"
import { openProfile } from "./Chromium.ts"
import {
  answered,
  answersOf,
  enterKey,
  layerPlayground,
  openPlayground,
  say,
  shown,
  visit
} from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

/** Whether any file below `folder` holds `text`, as UTF-8 or UTF-16. */
const anywhereIn = (folder: string, text: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => {
      const bytes = readFileSync(file)
      return bytes.includes(text) || bytes.includes(Buffer.from(text, "utf16le"))
    })

const goOnButton = (page: Page) => page.getByRole("button", { name: "Continue", exact: true })

inWorld(layerPlayground())("the playground in a real browser", (test) => {
  for (const surface of ["Native", "OpenAI"] as const) {
    test(`when a chat runs on the ${surface} surface, then it streams piece by piece, and tells tokens, request id and what is used`, function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey({ rpm: 60, tpm: 20_000 })
      const { page, complaints } = yield* openPlayground()
      yield* enterKey(page, secret)
      yield* Effect.promise(() => page.locator("#options").getByText(surface, { exact: true }).click())
      yield* Effect.promise(() => page.getByLabel("System prompt").fill("Be brief."))
      yield* Effect.promise(() => page.getByText("Parameters").click())
      yield* Effect.promise(() => page.getByLabel("Temperature").fill("0.5"))
      yield* Effect.promise(() => page.getByLabel("Max tokens").fill("99"))
      fake.script({
        does: "stream",
        lines: [wire.chat("First"), wire.chat(" and last"), wire.done()],
        gapMs: 1200
      })
      yield* say(page, "Hello there")
      // The first piece is on the screen while the answer is still running.
      yield* Effect.promise(() => page.locator(".turn.running").getByText("First").waitFor())
      yield* shown(page, "First and last")
      yield* answered(page, 1)
      // Facts have a line of their own, below the buttons.
      assert.isTrue(
        yield* Effect.promise(() =>
          page.evaluate<boolean>(
            `document.querySelector(".assistant .facts").getBoundingClientRect().top >= document.querySelector(".assistant .acts").getBoundingClientRect().bottom`
          )
        )
      )
      const facts = yield* Effect.promise(() => answersOf(page).last().locator(".facts").innerText())
      assert.match(facts, /7 in, 3 out/)
      assert.match(facts, /id [0-9a-f]{8}…/)
      yield* Effect.promise(() => page.getByText("10 of 20,000").waitFor())
      assert.strictEqual(
        yield* Effect.promise(() => page.locator("#meter-requests output").innerText()),
        "1 of 60"
      )
      const sent = fake.requests.at(-1)?.body
      assert.deepInclude(sent, {
        messages: [
          { role: "system", content: "Be brief." },
          { role: "user", content: "Hello there" }
        ]
      })
      assert.deepInclude(sent?.["options"], { temperature: 0.5, num_predict: 99 })
      // The conversation goes on from what was said.
      yield* say(page, "Again")
      yield* shown(page, "Hello world!")
      assert.lengthOf(yield* Effect.promise(() => answersOf(page).all()), 2)
      assert.deepInclude(fake.requests.at(-1)?.body, {
        messages: [
          { role: "system", content: "Be brief." },
          { role: "user", content: "Hello there" },
          { role: "assistant", content: "First and last" },
          { role: "user", content: "Again" }
        ]
      })
      assert.deepStrictEqual(complaints, [])
    })
  }

  test("when Escape stops an answer, then what was said stays, and the backend is let go", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    fake.script({ does: "stream", lines: [wire.chat("So far")], ends: "hang" })
    yield* say(page, "Go on for ever")
    yield* Effect.promise(() => page.locator(".turn.running").getByText("So far").waitFor())
    yield* Effect.promise(() => page.keyboard.press("Escape"))
    yield* shown(page, "So far")
    yield* shown(page, "stopped")
    const backendCall = fake.requests.at(-1)
    yield* fake.until(() => backendCall?.closedAt !== undefined)
    yield* Effect.promise(() => page.getByRole("button", { name: "Send", exact: true }).waitFor())
    assert.deepStrictEqual(complaints, [])
  })

  for (const surface of ["Native", "OpenAI"] as const)
    test(`when a stopped answer is continued on the ${surface} surface, then the model goes on from its words, in the same turn`, function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey()
      const { page, complaints } = yield* openPlayground()
      yield* enterKey(page, secret)
      yield* Effect.promise(() => page.locator("#options").getByText(surface, { exact: true }).click())
      const stop = Effect.fnUntraced(function* (shown: string) {
        yield* Effect.promise(() => page.locator(".turn.running").getByText(shown).waitFor())
        yield* Effect.promise(() => page.keyboard.press("Escape"))
        yield* answered(page, 1)
      })
      const goOn = Effect.promise(() => goOnButton(page).click())
      // Before its first word there is nothing to go on from: it is asked again.
      const seen = fake.requests.length
      fake.script({ does: "hang" })
      yield* say(page, "Count")
      yield* fake.until(() => fake.requests.length === seen + 1)
      yield* Effect.promise(() => page.keyboard.press("Escape"))
      yield* answered(page, 1)
      fake.script({ does: "stream", lines: [wire.chat("One, two")], ends: "hang" })
      yield* goOn
      yield* stop("One, two")
      fake.script({ does: "stream", lines: [wire.chat(", thr")], ends: "hang" })
      yield* goOn
      yield* stop("One, two, thr")
      fake.script({ does: "stream", lines: [wire.chat("ee."), wire.done()] })
      yield* goOn
      yield* shown(page, "One, two, three.")
      yield* answered(page, 1)
      const asked = { role: "user", content: "Count" }
      const sent = fake.requests.slice(-4).map(({ body }) => body?.["messages"])
      const before = (content: string) => [asked, { role: "assistant", content }]
      assert.deepStrictEqual(sent, [[asked], [asked], before("One, two"), before("One, two, thr")])
      assert.strictEqual(yield* Effect.promise(() => goOnButton(page).count()), 0)
      yield* say(page, "Again")
      yield* answered(page, 2)
      assert.deepInclude(fake.requests.at(-1)?.body, {
        messages: [...before("One, two, three."), { role: "user", content: "Again" }]
      })
      assert.deepStrictEqual(complaints, [])
    })

  test("when the gateway refuses a key, then the page says so; also for one that is revoked later", function* () {
    const registry = yield* Registry
    const { secret, prefix } = yield* newKey()
    const { page, complaints } = yield* openPlayground()
    yield* Effect.promise(() => page.getByLabel("API key").fill(`tg_${"x".repeat(41)}`))
    yield* Effect.promise(() => page.getByText("The gateway does not accept this key").waitFor())
    yield* enterKey(page, secret)
    yield* registry.revokeKey(prefix)
    yield* eventually(call("/api/version", { secret }), ({ status }) => status === 401)
    yield* say(page, "Hello")
    yield* shown(page, "The gateway does not accept this key")
    assert.deepStrictEqual(complaints, [])
  })

  test("when a model is taken from the key, then the page says what the gateway says of it", function* () {
    const registry = yield* Registry
    const { secret, tenant } = yield* newKey({ models: ["m"] })
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    yield* registry.setModels(tenant, { models: ["other"] })
    yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes("other"))
    yield* say(page, "Hello")
    yield* shown(page, "This key may not do that")
    yield* shown(page, "not one of this key's models; GET /v1/models lists them")
    assert.deepStrictEqual(complaints, [])
  })

  test("when a limit or a budget is spent, then the page says when it is possible again, and tries again on request", function* () {
    const registry = yield* Registry
    const { secret, prefix } = yield* newKey({ rpm: 1 })
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    yield* say(page, "One")
    yield* shown(page, "Hello world!")
    yield* say(page, "Two")
    yield* shown(page, "Too many requests this minute")
    yield* shown(page, "limit of 1 request per minute reached")
    yield* shown(page, "Possible again in")
    yield* Effect.promise(() => page.locator("#meter-requests[data-level=out]").waitFor())
    const again = page.getByRole("button", { name: "Try again" }).last()
    assert.isTrue(yield* Effect.promise(() => again.isDisabled()))
    yield* registry.changeKey(prefix, { rpm: 1000 })
    yield* eventually(
      call("/api/version", { secret }),
      ({ headers }) => headers.get("x-ratelimit-limit-requests") === "1000"
    )
    const message = "daily budget of 9 tokens is held by requests that run"
    yield* Effect.promise(() =>
      page.route(
        "**/api/chat",
        (route) =>
          route.fulfill({
            status: 429,
            headers: { "retry-after": "1" },
            json: { error: { type: "budget_exceeded", message } }
          }),
        { times: 1 }
      )
    )
    yield* say(page, "Two again")
    yield* shown(page, "Running requests hold the rest of the budget")
    // A press waits until the button can be pressed, which is when the second is over.
    yield* Effect.promise(() => again.click())
    yield* shown(page, "Hello world!")
    yield* registry.changeKey(prefix, { budgetDaily: 1 })
    yield* eventually(call("/api/version", { secret }), ({ headers }) => headers.has("x-budget-period"))
    yield* say(page, "Three")
    yield* shown(page, "The token budget is spent")
    yield* shown(page, "daily budget of 1 token is spent")
    yield* Effect.promise(() => page.getByText("Budget today", { exact: true }).waitFor())
    assert.deepStrictEqual(complaints, [])
  })

  test("when an answer breaks off, then the page says so and keeps what came", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page } = yield* openPlayground()
    yield* enterKey(page, secret)
    for (const [before, surface] of ["Native", "OpenAI"].entries()) {
      yield* Effect.promise(() => page.locator("#options").getByText(surface, { exact: true }).click())
      fake.script({ does: "stream", lines: [wire.chat("Half an")], ends: "reset", gapMs: 100 })
      yield* say(page, "Tell me")
      yield* answered(page, before + 1)
      yield* shown(page, "Half an")
      yield* shown(page, "model backend unavailable")
    }
  })

  test("when output, models and messages are hostile, then they are shown as text", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    const hostile = [
      `<img src=x onerror="document.title='owned'">`,
      `<script>document.title='owned'</script>`,
      "```html\n<svg onload=\"document.title='owned'\"><a href='javascript:alert(1)'>x</a>\n```\n",
      `</div><style>body{display:none}</style><iframe src="https://evil.example/"></iframe>`
    ]
    fake.script({
      does: "stream",
      lines: [
        wire.thinking("<b onmouseover=alert(1)>hm</b>"),
        wire.toolCall("<u>tool</u>", { "<i>": "<script>document.title='owned'</script>" }),
        ...hostile.map((text) => wire.chat(`${text}\n`)),
        wire.done()
      ]
    })
    const asked = `<img src=y onerror="document.title='owned'">`
    yield* say(page, asked)
    yield* shown(page, `<script>document.title='owned'</script>`)
    assert.strictEqual(yield* Effect.promise(() => page.title()), "Tollgate playground")
    assert.strictEqual(yield* Effect.promise(() => page.locator(".turn.user .text").innerText()), asked)
    const text = yield* Effect.promise(() => page.locator(".turn.assistant").innerText())
    for (const part of [
      `<img src=x onerror="document.title='owned'">`,
      "<svg onload=",
      "<iframe src=",
      "<u>tool</u>"
    ])
      assert.include(text, part)
    assert.strictEqual(
      yield* Effect.promise(() =>
        page.locator("#log :is(img, script, iframe, style, a, b, u, svg:not(.icon))").count()
      ),
      0
    )
    assert.deepStrictEqual(complaints, [])
  })

  test("when markup, script or style is injected, then the policy of the page refuses it", function* () {
    const { page, complaints } = yield* openPlayground()
    const tried = yield* Effect.promise(() =>
      page.evaluate<ReadonlyArray<string>>(`(async () => {
          const done = []
          try { document.body.innerHTML = "<img src=x onerror=1>"; done.push("innerHTML") } catch {}
          try { const s = document.createElement("script"); s.text = "window.ran = 1"; document.body.append(s) } catch {}
          const style = document.createElement("style"); style.textContent = "body { color: red }"; document.head.append(style)
          if (window.ran) done.push("script")
          if (getComputedStyle(document.body).color === "rgb(255, 0, 0)") done.push("style")
          try { await fetch("http://127.0.0.1:9/"); done.push("fetch") } catch {}
          return done
        })()`)
    )
    assert.deepStrictEqual(tried, [])
    // The watch that finds nothing elsewhere finds these.
    assert.isTrue(complaints.some((line) => line.includes("connect-src")))
    assert.isTrue(complaints.some((line) => line.includes("style-src")))
  })

  test("when a key was used, then it is in no storage, no address, no code and no file of the browser", function* () {
    const { url } = yield* Gateway
    const { secret } = yield* newKey()
    const { context, folder } = yield* openProfile
    const { page } = yield* visit(context)
    yield* enterKey(page, secret)
    yield* say(page, "Hello")
    yield* shown(page, "Hello world!")
    const stored = yield* Effect.promise(() =>
      page.evaluate<string>(`(async () => JSON.stringify([
          Object.entries(localStorage), Object.entries(sessionStorage), document.cookie,
          await indexedDB.databases(), "caches" in window ? await caches.keys() : [], location.href, history.state
        ]))()`)
    )
    assert.strictEqual(stored, JSON.stringify([[], [], "", [], [], `${url}/playground`, null]))
    yield* Effect.promise(() => page.locator("#show-code").click())
    for (const language of ["curl", "JavaScript", "Python"]) {
      yield* Effect.promise(() => page.getByRole("tab", { name: language }).click())
      const snippet = yield* Effect.promise(() => page.locator("#snippet").innerText())
      assert.include(snippet, "TOLLGATE_KEY")
      assert.include(snippet, "Hello")
      assert.notInclude(snippet, secret.slice(12))
    }
    yield* Effect.promise(() => page.reload())
    assert.strictEqual(yield* Effect.promise(() => page.getByLabel("API key").inputValue()), "")
    yield* Effect.promise(() => context.close())
    assert.isNotEmpty(anywhereIn(folder, `${url}/playground`))
    assert.deepStrictEqual(anywhereIn(folder, secret), [])
    assert.deepStrictEqual(anywhereIn(folder, secret.slice(12)), [])
  })
})
