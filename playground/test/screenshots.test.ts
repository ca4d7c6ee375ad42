/**
 * `npm run screenshots` makes the pictures of README and guide, in docs/images, from the whole gateway in front of the
 * built-in demo model. Without it, the test checks that the pictures are there and are used.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { BrowserContextOptions, Page } from "playwright-core"
import { Registry } from "../../src/admin/Registry.ts"
import { makeDemoBackend } from "../../src/backend/demo/DemoBackend.ts"
import { call, eventually, layerGatewayBefore, newKey } from "../../test/support/Gateway.ts"
import { layerTestPostgres } from "../../test/support/TestPostgres.ts"
import { layerTestRedis } from "../../test/support/TestRedis.ts"
import { layerBrowser } from "./Chromium.ts"
import { answered, enterKey, openPlayground, promptOf } from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

const root = path.resolve(import.meta.dirname, "../..")
const folder = path.join(root, "docs/images")

const idea = (page: Page, number: number) =>
  Effect.promise(() => page.locator(".ideas button").nth(number).click())

/** What each picture shows, and in which window. */
const pictures: Readonly<
  Record<string, readonly [BrowserContextOptions, (page: Page) => Effect.Effect<unknown>]>
> = {
  "playground-table-light": [
    { colorScheme: "light", viewport: { width: 1360, height: 860 } },
    (page) => Effect.andThen(idea(page, 0), answered(page, 1))
  ],
  "playground-code-dark": [
    { colorScheme: "dark", viewport: { width: 1360, height: 860 } },
    (page) => Effect.andThen(idea(page, 1), answered(page, 1))
  ],
  "playground-phone": [
    { colorScheme: "light", viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true },
    (page) => Effect.andThen(idea(page, 2), answered(page, 1))
  ],
  "playground-snippet": [
    { colorScheme: "light", viewport: { width: 1360, height: 860 } },
    (page) =>
      Effect.promise(async () => {
        await promptOf(page).fill("Why is the sky blue?")
        await page.locator("#show-code").click()
        await page.getByRole("tab", { name: "Python" }).click()
      })
  ]
}

const layerDemo = Layer.unwrap(
  Effect.map(Effect.orDie(makeDemoBackend), ({ url }) =>
    layerGatewayBefore(new URL(url), { PLAYGROUND_ENABLED: "true" })
  )
).pipe(
  Layer.provideMerge(layerTestPostgres()),
  Layer.provideMerge(Layer.fresh(layerTestRedis)),
  Layer.merge(layerBrowser)
)

if (process.env["SCREENSHOTS"] === "1")
  inWorld(layerDemo)("the pictures of the playground", (test) => {
    for (const [name, [options, show]] of Object.entries(pictures))
      test(`when ${name} is made, then it is in docs/images`, function* () {
        const registry = yield* Registry
        const { secret, prefix } = yield* newKey({ rpm: 60, tpm: 20_000 })
        yield* registry.changeKey(prefix, { budgetDaily: 1000 })
        yield* eventually(
          call("/api/tags", { secret }),
          ({ headers, text }) => text.includes("demo-chat") && headers.has("x-budget-period")
        )
        const { page } = yield* openPlayground(options)
        yield* enterKey(page, secret)
        yield* show(page)
        // The meters move to what the answer has cost.
        yield* Effect.promise(() => page.waitForTimeout(1000))
        mkdirSync(folder, { recursive: true })
        yield* Effect.promise(() => page.screenshot({ path: path.join(folder, `${name}.png`) }))
      })
  })

it("when README and guide show pictures, then they are there, and each picture is shown", () => {
  const papers = ["README.md", "docs/playground.md"].map((name) => {
    const text = readFileSync(path.join(root, name), "utf8")
    const shown = [...text.matchAll(/!\[[^\]]+\]\(([^)\s]+\.png)\)/g)].map((match) => match[1] ?? "")
    return shown.map((picture) => path.join(path.dirname(path.join(root, name)), picture))
  })
  const used = new Set(papers.flat())
  for (const picture of used) {
    assert.isTrue(existsSync(picture), picture)
    assert.isBelow(statSync(picture).size, 300_000, picture)
  }
  assert.sameMembers(
    [...used].map((picture) => path.basename(picture)),
    readdirSync(folder)
  )
  assert.sameMembers(
    readdirSync(folder),
    Object.keys(pictures).map((name) => `${name}.png`)
  )
})
