/**
 * `npm run stranger`: what somebody who never saw this does first, timed. A clone of what is committed, `npm ci` with an
 * empty cache, `npm start`, and a first question in the playground of a real Chromium, until its answer is there.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { arch, cpus, platform, tmpdir, totalmem } from "node:os"
import * as path from "node:path"
import { Effect } from "effect"
import { openBrowser, watch } from "../browser/Chromium.ts"
import { CheckoutFailed, clone, npmStart, shell } from "../support/Checkout.ts"
import { freePort } from "../support/servers/processes.ts"

const say = (line: string) => Effect.sync(() => void process.stdout.write(`${line}\n`))

const began = performance.now()
const seconds = (since: number) => `${((performance.now() - since) / 1000).toFixed(1).padStart(6)} s`

const timed = <A, E, R>(name: string, step: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const since = performance.now()
    return Effect.tap(step, () => say(`${seconds(since)}  ${name}`))
  })

const emptyCache = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(path.join(tmpdir(), "tgn-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

const stranger = Effect.gen(function* () {
  const gib = (totalmem() / 2 ** 30).toFixed(0)
  yield* say(`${platform()} ${arch()}, ${cpus().length} × ${cpus()[0]?.model}, ${gib} GiB`)
  const folder = yield* timed("git clone", clone)
  const cache = yield* emptyCache
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
  const { context } = yield* timed("a browser", openBrowser())
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
  yield* say(`${seconds(began)}  from nothing to a streamed answer`)
})

process.exitCode = await Effect.runPromise(
  stranger.pipe(
    Effect.timeout("10 minutes"),
    Effect.scoped,
    Effect.as(0),
    Effect.catchCause((cause) => Effect.as(say(`FAILED ${cause}`), 1))
  )
)
