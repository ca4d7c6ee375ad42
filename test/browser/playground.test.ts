import { mkdirSync, readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { BrowserContextOptions, Page } from "playwright-core"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, layerGateway, newKey } from "../support/Gateway.ts"
import { openBrowser, watch } from "./Chromium.ts"

const live = { excludeTestServices: true, timeout: 60_000 } as const

/** With `SCREENSHOTS` set to a folder, every test leaves a picture of what it saw there. */
const picture = (page: Page, name: string) =>
  Effect.promise(async () => {
    const folder = process.env["SCREENSHOTS"]
    if (folder === undefined) return
    mkdirSync(folder, { recursive: true })
    await page.screenshot({ path: path.join(folder, `${name}.png`) })
  })

const open = Effect.fnUntraced(function* (options: BrowserContextOptions = {}) {
  const { url } = yield* Gateway
  const profile = yield* openBrowser(options)
  const watched = yield* watch(profile.context)
  yield* Effect.promise(() => watched.page.goto(`${url}/playground`))
  return { ...profile, ...watched }
})

/** Types the key and waits until the models are there. */
const enter = (page: Page, secret: string) =>
  Effect.promise(async () => {
    await page.getByLabel("API key").fill(secret)
    await page.locator("#key-note.good").waitFor()
  })

const say = (page: Page, text: string) =>
  Effect.promise(async () => {
    await page.getByLabel("Message").fill(text)
    await page.getByLabel("Message").press("Enter")
  })

const answers = (page: Page) => page.locator(".turn.assistant:not(.running)")

const shown = (page: Page, text: string) =>
  Effect.promise(() => answers(page).last().getByText(text).first().waitFor())

/** Whether any file below `folder` holds `text`, as UTF-8 or UTF-16. */
const anywhereIn = (folder: string, text: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => {
      const bytes = readFileSync(file)
      return bytes.includes(text) || bytes.includes(Buffer.from(text, "utf16le"))
    })

layer(layerGateway({ PLAYGROUND_ENABLED: "true" }), live)("the playground in a real browser", (it) => {
  for (const surface of ["Native", "OpenAI"] as const) {
    it.effect(
      `when a prompt is sent (${surface}), then the answer comes piece by piece, then tokens, request id and what is left`,
      () =>
        Effect.gen(function* () {
          const fake = yield* Fake
          const { secret } = yield* newKey({ rpm: 60, tpm: 20_000 })
          const { page, complaints } = yield* open()
          yield* enter(page, secret)
          yield* Effect.promise(() => page.getByText(surface, { exact: true }).click())
          yield* Effect.promise(() => page.getByLabel("System prompt").fill("Be brief."))
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
          const facts = yield* Effect.promise(() => answers(page).last().locator(".facts").innerText())
          assert.match(facts, /7 in · 3 out/)
          assert.match(facts, /[0-9a-f]{8}-[0-9a-f]{4}-7/)
          yield* Effect.promise(() => page.getByText("19,990 of 20,000").waitFor())
          assert.strictEqual(
            yield* Effect.promise(() => page.locator("#gauge-requests output").innerText()),
            "59 of 60"
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
          assert.lengthOf(yield* Effect.promise(() => answers(page).all()), 2)
          assert.deepInclude(fake.requests.at(-1)?.body, {
            messages: [
              { role: "system", content: "Be brief." },
              { role: "user", content: "Hello there" },
              { role: "assistant", content: "First and last" },
              { role: "user", content: "Again" }
            ]
          })
          assert.deepStrictEqual(complaints, [])
        }).pipe(Effect.scoped)
    )
  }

  for (const how of ["Escape", "the button"] as const) {
    it.effect(`when ${how} stops an answer, then its text stays and the backend call ends`, () =>
      Effect.gen(function* () {
        const fake = yield* Fake
        const { secret } = yield* newKey()
        const { page, complaints } = yield* open()
        yield* enter(page, secret)
        fake.script({ does: "stream", lines: [wire.chat("So far")], ends: "hang" })
        yield* say(page, "Go on for ever")
        yield* Effect.promise(() => page.locator(".turn.running").getByText("So far").waitFor())
        yield* Effect.promise(() =>
          how === "Escape"
            ? page.keyboard.press("Escape")
            : page.getByRole("button", { name: "Stop" }).click()
        )
        yield* shown(page, "So far")
        yield* shown(page, "stopped")
        const backendCall = fake.requests.at(-1)
        yield* fake.until(() => backendCall?.closedAt !== undefined)
        yield* Effect.promise(() => page.getByRole("button", { name: "Send" }).waitFor())
        assert.deepStrictEqual(complaints, [])
      }).pipe(Effect.scoped)
    )
  }

  it.effect("when a key is unknown, or revoked later, then the page says so", () =>
    Effect.gen(function* () {
      const registry = yield* Registry
      const { secret, prefix } = yield* newKey()
      const { page, complaints } = yield* open()
      yield* Effect.promise(() => page.getByLabel("API key").fill(`tg_${"x".repeat(41)}`))
      yield* Effect.promise(() => page.getByText("The gateway does not know this key.").waitFor())
      yield* enter(page, secret)
      yield* registry.revokeKey(prefix)
      yield* eventually(call("/api/version", { secret }), ({ status }) => status === 401)
      yield* say(page, "Hello")
      yield* shown(page, "401 unauthorized")
      yield* picture(page, "401")
      assert.deepStrictEqual(complaints, [])
    }).pipe(Effect.scoped)
  )

  it.effect(
    "when a limit or a budget is used up, then the page shows the wait, and tries again on request",
    () =>
      Effect.gen(function* () {
        const registry = yield* Registry
        const { secret, prefix } = yield* newKey({ rpm: 1 })
        const { page, complaints } = yield* open()
        yield* enter(page, secret)
        yield* say(page, "One")
        yield* shown(page, "Hello world!")
        yield* say(page, "Two")
        yield* shown(page, "429 rate_limit_exceeded")
        yield* shown(page, "limit of 1 request per minute reached")
        yield* shown(page, "possible again in")
        yield* Effect.promise(() => page.locator("#gauge-requests.out").waitFor())
        yield* picture(page, "429")
        yield* registry.setKeyLimits(prefix, { rpm: 1000 })
        const again = page.getByRole("button", { name: "Try again" })
        yield* eventually(
          Effect.promise(async () => {
            if (await again.isVisible()) await again.click()
            await page.waitForTimeout(300)
            return answers(page).last().innerText()
          }),
          (text) => text.includes("Hello world!")
        )
        yield* registry.setBudgets(prefix, { day: 1 })
        yield* eventually(call("/api/version", { secret }), ({ headers }) => headers.has("x-budget-period"))
        yield* say(page, "Three")
        yield* shown(page, "429 budget_exceeded")
        yield* shown(page, "daily budget of 1 token is spent")
        yield* Effect.promise(() => page.getByText("Budget (day)").waitFor())
        assert.deepStrictEqual(complaints, [])
      }).pipe(Effect.scoped)
  )

  it.effect("when an answer breaks off, then the page says so and keeps its text", () =>
    Effect.gen(function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey()
      const { page } = yield* open()
      yield* enter(page, secret)
      for (const surface of ["Native", "OpenAI"]) {
        yield* Effect.promise(() => page.getByText(surface, { exact: true }).click())
        fake.script({ does: "stream", lines: [wire.chat("Half an")], ends: "reset", gapMs: 100 })
        yield* say(page, "Tell me")
        yield* shown(page, "Half an")
        yield* shown(page, "model backend unavailable")
      }
    }).pipe(Effect.scoped)
  )

  it.effect("when output, models and messages are hostile, then they are shown as text", () =>
    Effect.gen(function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey()
      const { page, complaints } = yield* open()
      yield* enter(page, secret)
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
          page.locator("#log :is(img, script, svg, iframe, style, a, b, u)").count()
        ),
        0
      )
      assert.deepStrictEqual(complaints, [])
      yield* picture(page, "hostile")
    }).pipe(Effect.scoped)
  )

  it.effect("when markup, script or style is injected, then the policy refuses it", () =>
    Effect.gen(function* () {
      const { page, complaints } = yield* open()
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
    }).pipe(Effect.scoped)
  )

  it.effect(
    "when a key was used, then it is in no storage, no address, no copied code and no file of the browser",
    () =>
      Effect.gen(function* () {
        const { url } = yield* Gateway
        const { secret } = yield* newKey()
        const { page, context, folder } = yield* open()
        yield* enter(page, secret)
        yield* say(page, "Hello")
        yield* shown(page, "Hello world!")
        const stored = yield* Effect.promise(() =>
          page.evaluate<string>(`(async () => JSON.stringify([
          Object.entries(localStorage), Object.entries(sessionStorage), document.cookie,
          await indexedDB.databases(), "caches" in window ? await caches.keys() : [], location.href, history.state
        ]))()`)
        )
        assert.strictEqual(stored, JSON.stringify([[], [], "", [], [], `${url}/playground`, null]))
        yield* Effect.promise(() => page.getByRole("button", { name: "Code" }).click())
        for (const language of ["curl", "JavaScript", "Python"]) {
          yield* Effect.promise(() => page.getByRole("tab", { name: language }).click())
          const snippet = yield* Effect.promise(() => page.locator("#snippet").innerText())
          assert.include(snippet, "TOLLGATE_KEY")
          assert.include(snippet, "Hello")
          assert.notInclude(snippet, secret.slice(12))
        }
        yield* picture(page, "code")
        yield* Effect.promise(() => page.reload())
        assert.strictEqual(yield* Effect.promise(() => page.getByLabel("API key").inputValue()), "")
        yield* Effect.promise(() => context.close())
        assert.isNotEmpty(anywhereIn(folder, `${url}/playground`))
        assert.deepStrictEqual(anywhereIn(folder, secret), [])
        assert.deepStrictEqual(anywhereIn(folder, secret.slice(12)), [])
      }).pipe(Effect.scoped)
  )

  for (const [name, options] of [
    ["light", { colorScheme: "light", viewport: { width: 1280, height: 860 } }],
    ["dark", { colorScheme: "dark", viewport: { width: 1280, height: 860 } }],
    ["narrow", { colorScheme: "light", viewport: { width: 375, height: 740 } }],
    ["narrow dark", { colorScheme: "dark", viewport: { width: 320, height: 640 } }]
  ] as const) {
    it.effect(
      `when the scheme is ${name}, then nothing is cut off sideways, and text has enough contrast`,
      () =>
        Effect.gen(function* () {
          const fake = yield* Fake
          const registry = yield* Registry
          const { secret, prefix } = yield* newKey({ rpm: 60, tpm: 20_000 })
          yield* registry.setBudgets(prefix, { month: 50_000 })
          const { page, complaints } = yield* open(options)
          yield* picture(page, `${name}-empty`)
          yield* enter(page, secret)
          yield* say(page, "Show me quicksort in Python, and a word that is long: " + "a".repeat(120))
          yield* shown(page, "Hello world!")
          fake.script({
            does: "stream",
            lines: [
              wire.chat("Here it is: pick a pivot, split around it, and sort both halves the same way.\n\n"),
              wire.chat("```python\ndef quicksort(items):\n    if len(items) <= 1:\n        return items\n"),
              wire.chat(
                "    pivot, *rest = items\n    return [*quicksort([x for x in rest if x < pivot]), pivot, *quicksort([x for x in rest if x >= pivot])]\n```\n\n"
              ),
              wire.chat("It runs in O(n log n) on average. The worst case is a list that is already sorted."),
              wire.done()
            ],
            gapMs: 20
          })
          yield* say(page, "And in full?")
          yield* shown(page, "It runs in")
          yield* Effect.promise(() => page.waitForTimeout(500))
          yield* picture(page, name)
          const layout = yield* Effect.promise(() =>
            page.evaluate<{ readonly overflow: number; readonly contrast: number }>(`(() => {
            const luminance = (color) => {
              const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
              return 0.2126 * r + 0.7152 * g + 0.0722 * b
            }
            const body = getComputedStyle(document.body)
            const sheet = luminance(body.backgroundColor)
            const ratios = [...document.querySelectorAll(".note, .facts, .answer .text, label, .keys")].map((element) => {
              const ink = luminance(getComputedStyle(element).color)
              return (Math.max(ink, sheet) + 0.05) / (Math.min(ink, sheet) + 0.05)
            })
            return { overflow: document.documentElement.scrollWidth - innerWidth, contrast: Math.min(...ratios) }
          })()`)
          )
          assert.isAtMost(layout.overflow, 0)
          assert.isAtLeast(layout.contrast, 4.5)
          assert.deepStrictEqual(complaints, [])
        }).pipe(Effect.scoped)
    )
  }
})
