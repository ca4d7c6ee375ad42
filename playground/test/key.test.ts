/** What the page shows of a key: whether it may send, what it used, and the settings of programs. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import type { Page } from "playwright-core"
import { outputIn, smallestWindow } from "../../cli/connect/Client.ts"
import { clients } from "../../cli/connect/clients.ts"
import { printed } from "../../cli/connect/texts.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { fake as wire } from "../../test/support/FakeBackend.ts"
import { call, eventually, Fake, Gateway, hello, newKey } from "../../test/support/Gateway.ts"
import { sql } from "../../test/support/sql.ts"
import { inWorld } from "../../test/support/testWith.ts"
import { answered, enterKey, layerPlayground, openPlayground, promptOf, say } from "./Playground.ts"

const openUses = (page: Page) =>
  Effect.promise(() => page.locator("#options summary", { hasText: "Use by day" }).click())

const usesNote = (page: Page, text: string) =>
  Effect.promise(() => page.locator("#uses-note", { hasText: text }).waitFor())

const usesText = (page: Page) =>
  Effect.map(
    Effect.promise(() => page.locator("#uses").innerText()),
    (text) => text.trim()
  )

inWorld(layerPlayground({ EXTRA_SURFACES: "responses", NUM_PREDICT_CAP: "700" }))(
  "what the playground shows of a key",
  (test) => {
    test("when no key is accepted, then Send is off, and Stop is on while an answer runs", function* () {
      const fake = yield* Fake
      const { secret } = yield* newKey()
      const { page, complaints } = yield* openPlayground()
      const send = page.locator("#send")
      const isOff = () => Effect.promise(() => send.isDisabled())
      assert.isTrue(yield* isOff())
      yield* Effect.promise(() => page.getByLabel("API key").fill(`tg_${"x".repeat(41)}`))
      yield* Effect.promise(() => page.locator("#key-note.bad").waitFor())
      assert.isTrue(yield* isOff())
      yield* enterKey(page, secret)
      assert.isFalse(yield* isOff())
      fake.script({ does: "stream", lines: [wire.chat("So far")], ends: "hang" })
      yield* Effect.promise(() => promptOf(page).fill("Go on for ever"))
      yield* Effect.promise(() => send.click())
      yield* Effect.promise(() => page.locator(".turn.running").getByText("So far").waitFor())
      yield* Effect.promise(() => page.getByLabel("API key").fill("gone"))
      yield* Effect.promise(() => page.getByText("this has 4").waitFor())
      assert.isFalse(yield* isOff())
      yield* Effect.promise(() => send.click())
      yield* answered(page, 1)
      assert.isTrue(yield* isOff())
      assert.deepStrictEqual(complaints, [])
    })

    test("when somebody looks at the use of a key, then it is that of this key by day and model, and of no other", function* () {
      const [mine, other] = [yield* newKey(), yield* newKey()]
      const chat = (secret: string) => call("/api/chat", { secret, body: hello({ stream: false }) })
      for (const secret of [mine.secret, other.secret, other.secret]) yield* chat(secret)
      yield* sql`INSERT INTO usage_daily (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
        SELECT k.id, (now() AT TIME ZONE 'UTC')::date - d.ago, 'older:' || k.name, k.tenant_id, 3, 2000, 500, 0
        FROM api_keys k, (VALUES (2), (40)) d(ago) WHERE k.prefix = ${mine.prefix}`
      const { page, complaints } = yield* openPlayground()
      yield* openUses(page)
      yield* usesNote(page, "Shown when there is a key.")
      yield* enterKey(page, mine.secret)
      yield* usesNote(page, "4 requests, 2,007 tokens in and 503 out since")
      const day = (ago: number) => new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10)
      assert.strictEqual(
        (yield* usesText(page)).replaceAll(/\s+/g, " "),
        `Model Requests Tokens ${day(0)} m:latest 1 7 in 3 out ${day(2)} older:k 3 2,000 in 500 out`
      )
      // An answer is in it at once.
      yield* say(page, "Hello")
      yield* answered(page, 1)
      yield* usesNote(page, "5 requests, 2,014 tokens in and 506 out since")
      yield* Effect.promise(() => page.getByLabel("API key").fill(other.secret))
      yield* usesNote(page, "2 requests, 14 tokens in and 6 out since")
      assert.notInclude(yield* usesText(page), "older")
      // The books are proven after each test.
      yield* sql`DELETE FROM usage_daily WHERE model LIKE 'older:%'`
      const { secret: fresh } = yield* newKey()
      yield* Effect.promise(() => page.getByLabel("API key").fill(fresh))
      yield* usesNote(page, "Nothing since")
      assert.strictEqual(yield* usesText(page), "")
      assert.deepStrictEqual(complaints, [])
    })

    test("when the key was revoked, then its use is not shown any more, and the page says why", function* () {
      const registry = yield* Registry
      const { secret, prefix } = yield* newKey()
      yield* call("/api/chat", { secret, body: hello() })
      const { page } = yield* openPlayground()
      yield* enterKey(page, secret)
      yield* openUses(page)
      yield* usesNote(page, "1 request, 7 tokens in and 3 out since")
      yield* registry.revokeKey(prefix)
      yield* eventually(call("/api/version", { secret }), ({ status }) => status === 401)
      yield* openUses(page)
      yield* openUses(page)
      yield* usesNote(page, "The gateway does not accept this key.")
      assert.strictEqual(yield* usesText(page), "")
    })

    test("when a program is chosen, then its settings are what the command prints for this address", function* () {
      const { url } = yield* Gateway
      const { secret } = yield* newKey()
      const { page, context, complaints } = yield* openPlayground()
      yield* Effect.promise(() => context.grantPermissions(["clipboard-read", "clipboard-write"]))
      yield* enterKey(page, secret)
      yield* Effect.promise(() => page.locator("#model").selectOption("m:latest"))
      const link = page.getByRole("button", { name: "Use it from your program" })
      yield* Effect.promise(() => link.click())
      const output = outputIn(smallestWindow, 700)
      assert.strictEqual(output, 700)
      const facts = { url, model: "m:latest", window: smallestWindow, output }
      for (const client of clients) {
        yield* Effect.promise(() => page.locator("#program").selectOption(client.name))
        const shown = yield* Effect.promise(() => page.locator("#connect-text").innerText())
        assert.strictEqual(shown, printed(client, facts), client.name)
        assert.notInclude(shown, secret.slice(12))
        const notes = yield* Effect.promise(() => page.locator("#connect-notes").innerText())
        assert.strictEqual(notes.includes("which this gateway does not serve"), client.surface === "messages")
        assert.strictEqual(
          notes.includes("is too small"),
          (client.firstRequest ?? 0) > smallestWindow - output,
          client.name
        )
      }
      const last = clients.at(-1)
      assert.isDefined(last)
      yield* Effect.promise(() => page.locator("#copy-connect").click())
      const copied = Effect.promise(() => page.evaluate<string>("navigator.clipboard.readText()"))
      const text = last === undefined ? "" : printed(last, facts)
      assert.strictEqual(yield* eventually(copied, (found) => found === text), text)
      yield* Effect.promise(() => page.keyboard.press("Escape"))
      assert.strictEqual(
        yield* Effect.promise(() => page.evaluate("document.activeElement.id")),
        "show-connect"
      )
      assert.deepStrictEqual(complaints, [])
    })
  }
)
