/** The playground in a browser, and what a visitor does there. */
import * as path from "node:path"
import { Effect, Layer } from "effect"
import { build } from "esbuild"
import type { BrowserContext, BrowserContextOptions, Page } from "playwright-core"
import { type Environment, Gateway, layerGateway } from "../../test/support/Gateway.ts"
import { layerBrowser, openContext, watch } from "./Chromium.ts"
import { maxWaitMs } from "../../test/support/wait.ts"

/** A gateway with the playground, and a browser. */
export const layerPlayground = (env: Environment = {}) =>
  Layer.merge(layerGateway({ PLAYGROUND_ENABLED: "true", ...env }), layerBrowser)

/** The page in `context`. */
export const visit = Effect.fnUntraced(function* (context: BrowserContext) {
  const { url } = yield* Gateway
  const watched = yield* watch(context)
  yield* Effect.promise(() => watched.page.goto(`${url}/playground`))
  return { context, ...watched }
})

/** The page, for somebody who has never been there. */
export const openPlayground = (options: BrowserContextOptions = {}) =>
  Effect.flatMap(openContext(options), visit)

export const promptOf = (page: Page) => page.getByLabel("Message", { exact: true })

/** Types the key and waits until the models are there. */
export const enterKey = (page: Page, secret: string) =>
  Effect.promise(async () => {
    await page.getByLabel("API key").fill(secret)
    await page.locator("#key-note.good").waitFor({ state: "attached" })
  })

export const say = (page: Page, text: string) =>
  Effect.promise(async () => {
    await promptOf(page).fill(text)
    await promptOf(page).press("Enter")
  })

export const answersOf = (page: Page) => page.locator(".turn.assistant:not(.running)")

/** Waits for the text in the last complete answer, and until the page is done with it: calls of tools come last. */
export const shown = (page: Page, text: string) =>
  Effect.promise(async () => {
    await answersOf(page).last().getByText(text).first().waitFor()
    await page.locator('#send[aria-label="Send"]').waitFor()
  })

/** Waits until so many answers are complete and none runs. The policy of the page forbids Playwright's own waiting for this. */
export const answered = (page: Page, count: number) =>
  Effect.promise(async () => {
    const deadline = performance.now() + maxWaitMs
    for (;;) {
      const [complete, busy] = await page.evaluate<readonly [number, string]>(
        `[document.querySelectorAll(".turn.assistant:not(.running)").length, document.getElementById("send").getAttribute("aria-label")]`
      )
      if (complete >= count && busy === "Send") return
      if (performance.now() > deadline) throw new Error(`${complete} of ${count} answers, ${busy}`)
      await page.waitForTimeout(20)
    }
  })

export const pressed = (page: Page, name: string) =>
  Effect.promise(() => page.getByRole("button", { name, exact: true }).last().click())

export const settingsOf = (page: Page) =>
  Effect.promise(async () => {
    const opener = page.getByRole("button", { name: "Settings", exact: true })
    if (await opener.isVisible()) await opener.click()
  })

/** What `expression` is in the page, with the exports of one of its scripts in `module`. */
export const evaluateWith = <A>(page: Page, script: string, expression: string) =>
  Effect.promise(async () => {
    const { outputFiles } = await build({
      entryPoints: [path.join(import.meta.dirname, "../script", script)],
      bundle: true,
      format: "iife",
      globalName: "module",
      write: false
    })
    return page.evaluate<A>(`(() => { ${outputFiles[0]?.text}; return ${expression} })()`)
  })
