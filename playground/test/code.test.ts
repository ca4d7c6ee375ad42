/** The code that the page gives is run as pasted. Python runs where its packages are: real/snippets.real.ts. */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Fake, newKey } from "../../test/support/Gateway.ts"
import { answered, enterKey, layerPlayground, openPlayground, say } from "./Playground.ts"
import { inWorld } from "../../test/support/testWith.ts"

const root = path.resolve(import.meta.dirname, "../..")

/** What the command prints, with the key in its environment. */
const run = (command: string, args: ReadonlyArray<string>, key: string) =>
  Effect.callback<string>((resume) => {
    const child = spawn(command, args, { cwd: root, env: { ...process.env, TOLLGATE_KEY: key } })
    let printed = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (printed += text))
    child.once("close", () => resume(Effect.succeed(printed)))
    return Effect.sync(() => child.kill())
  })

/** Beside the packages of this repository, where Node finds them. */
const scratch = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(path.join(root, "node_modules/.cache/snippet-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

inWorld(layerPlayground())("the code of the playground", (test) => {
  test("when it is pasted into a shell or a file after two turns, then it runs, and sends one turn or the whole conversation", function* () {
    const fake = yield* Fake
    const { secret } = yield* newKey()
    const folder = yield* scratch
    const { page, complaints } = yield* openPlayground()
    yield* enterKey(page, secret)
    const awkward = `It's "quoted", $HOME \`date\` \\n ${"\u{1f600}"}\nJSON`
    yield* Effect.promise(() => page.getByLabel("System prompt").fill(awkward))
    yield* say(page, awkward)
    yield* answered(page, 1)
    yield* say(page, "And again?")
    yield* answered(page, 2)
    const system = { role: "system", content: awkward }
    const last = { role: "user", content: "And again?" }
    const earlier = [
      { role: "user", content: awkward },
      { role: "assistant", content: "Hello world!" }
    ]
    yield* Effect.promise(() => page.locator("#show-code").click())
    for (const surface of ["Native", "OpenAI"])
      for (const [scope, expected] of [
        ["This turn only", [system, last]],
        ["Whole conversation", [system, ...earlier, last]]
      ] as const)
        for (const [language, command, file] of [
          ["curl", "bash", "ask.sh"],
          ["JavaScript", process.execPath, "ask.mjs"]
        ] as const) {
          const code = yield* Effect.promise(async () => {
            await page.locator("#code label", { hasText: surface }).click()
            await page.locator("#code label", { hasText: scope }).click()
            await page.getByRole("tab", { name: language }).click()
            return await page.locator("#snippet").innerText()
          })
          const before = fake.requests.length
          writeFileSync(path.join(folder, file), code)
          const printed = yield* run(command, [path.join(folder, file)], secret)
          assert.include(
            printed.replaceAll(/[^]*?"content":"([^"]*)"|[^"]*$/g, "$1") + printed,
            "Hello",
            `${surface} ${language}: ${printed}`
          )
          assert.strictEqual(fake.requests.length, before + 1)
          assert.deepStrictEqual(
            fake.requests.at(-1)?.body?.["messages"],
            expected,
            `${surface} ${language}, ${scope}`
          )
        }
    assert.deepStrictEqual(complaints, [])
  })
})
