/** A real browser: Debian's Chromium, or the one `CHROMIUM` names. Without one the tests fail and say what is missing. */
import { accessSync, constants } from "node:fs"
import { Context, Data, Effect, Layer, type Scope } from "effect"
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page
} from "playwright-core"
import { maxWaitMs } from "../../test/support/wait.ts"
import { temporaryFolder } from "../../test/support/temporaryFolder.ts"

const executable = process.env["CHROMIUM"] ?? "/usr/bin/chromium"

class NoBrowser extends Data.TaggedError("NoBrowser")<{ readonly message: string }> {}

const present = Effect.try({
  try: () => accessSync(executable, constants.X_OK),
  catch: () =>
    new NoBrowser({
      message: `no Chromium at ${executable}: apt-get install -y chromium, or set CHROMIUM to the path of one (the playground is tested in a real browser)`
    })
})

const launch = {
  executablePath: executable,
  headless: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync"
  ]
}

/** One browser for all tests of a file: it takes a second and more to start. */
export class TestBrowser extends Context.Service<TestBrowser, Browser>()("playground/test/Browser") {}

export const layerBrowser = Layer.effect(
  TestBrowser,
  Effect.andThen(
    Effect.orDie(present),
    Effect.acquireRelease(
      Effect.promise(() => chromium.launch(launch)),
      (browser) => Effect.promise(() => browser.close())
    )
  )
)

const opened = (open: () => Promise<BrowserContext>): Effect.Effect<BrowserContext, never, Scope.Scope> =>
  Effect.acquireRelease(Effect.promise(open), (context) => Effect.promise(() => context.close())).pipe(
    Effect.tap((context) => Effect.sync(() => context.setDefaultTimeout(maxWaitMs)))
  )

/** Of a visitor of one's own: nothing of another one's is there. */
export const openContext = (options: BrowserContextOptions = {}) =>
  Effect.flatMap(TestBrowser, (browser) => opened(() => browser.newContext(options)))

/** A browser with an empty profile in `folder`, which stays readable until the scope closes. */
export const openProfile = Effect.gen(function* () {
  yield* Effect.orDie(present)
  const folder = yield* temporaryFolder
  const context = yield* opened(() => chromium.launchPersistentContext(folder, launch))
  return { context, folder }
})

/** What went wrong in a page by itself: refused by the policy, thrown, or complained about on the console. */
export interface Watched {
  readonly page: Page
  readonly complaints: ReadonlyArray<string>
}

export const watch = Effect.fnUntraced(function* (context: BrowserContext) {
  const complaints: Array<string> = []
  yield* Effect.promise(() =>
    context.addInitScript(
      `document.addEventListener("securitypolicyviolation", (event) => console.error("CSP violation: " + event.violatedDirective + " " + event.blockedURI))`
    )
  )
  const page = yield* Effect.promise(() => context.newPage())
  page.on("pageerror", (error) => complaints.push(String(error)))
  page.on("console", (message) => {
    // A refusal of the gateway is told by Chromium as a failed resource; that is no fault of the page.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      complaints.push(message.text())
  })
  return { page, complaints } satisfies Watched
})
