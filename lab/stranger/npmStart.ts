/** What the README says first: a clone, `npm ci` with an empty cache, `npm start`, and a question in the playground of a real Chromium. */
import { Effect } from "effect"
import { openProfile, watch } from "../../playground/test/Chromium.ts"
import { CheckoutFailed, clone, npmStart, shell } from "../../test/support/Checkout.ts"
import { timed } from "./steps.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { temporaryFolder } from "../../test/support/temporaryFolder.ts"

export const throughNpmStart = Effect.gen(function* () {
  const folder = yield* timed("git clone", clone)
  const cache = yield* temporaryFolder
  yield* timed(
    "npm ci, nothing cached",
    shell(folder, "npm ci --no-audit --no-fund", { npm_config_cache: cache }).pipe(
      Effect.filterOrFail(
        ({ code }) => code === 0,
        ({ stderr }) => new CheckoutFailed({ message: stderr })
      )
    )
  )
  const { key, url } = yield* timed("npm start", npmStart(folder, { PORT: String(yield* freePort) }))
  const { context } = yield* timed("a browser", openProfile)
  const { complaints, page } = yield* watch(context)
  const answer = page.locator(".turn.assistant")
  yield* timed(
    "playground, key typed in",
    Effect.promise(async () => {
      await page.goto(`${url}/playground`)
      await page.getByLabel("API key").fill(key)
      await page.locator("#key-note.good").waitFor()
    })
  )
  yield* timed(
    "first words of the answer",
    Effect.promise(async () => {
      await page.getByLabel("Message", { exact: true }).fill("Hello")
      await page.getByLabel("Message", { exact: true }).press("Enter")
      await answer.getByText("said").first().waitFor()
    })
  )
  yield* timed(
    "the whole answer",
    Effect.promise(() => page.locator(".turn.assistant:not(.running)").waitFor())
  )
  if (complaints.length > 0) return yield* new CheckoutFailed({ message: complaints.join("\n") })
})
