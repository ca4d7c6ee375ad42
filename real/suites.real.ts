/**
 * Suites of others, straight at the server and through the gateway: what passes there passes here, but for what is known.
 * `SUITES=LangChain,Schemathesis` runs some. Before Ollama 0.24 nothing passes straight on the surfaces that it has not.
 */
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Console, Effect } from "effect"
import { call, eventually, Gateway, newKey } from "../test/support/Gateway.ts"
import { canBuild, installPython } from "./clients/install.ts"
import { buildIntegration } from "./ollama/build.ts"
import { layerRealGateway } from "./RealGateway.ts"
import { RealOllama } from "./RealOllama.ts"
import { type Suite, suites } from "./suites/catalogue.ts"
import { keyProxy } from "./suites/keyProxy.ts"

const here = path.join(import.meta.dirname, "suites")
const openapi = path.resolve(import.meta.dirname, "../openapi.json")
const chosen = (process.env["SUITES"] ?? "").split(",")

/** The tests of a run, and whether each passed. The run itself may fail: some tests do straight at the server. */
const run = Effect.fnUntraced(function* ({ args, environment, verdict }: Suite, url: string, key: string) {
  const program = yield* environment === "go" ? buildIntegration : installPython(environment)
  const places = { openapi, url, key, suites: here }
  const words = args.map((arg) =>
    Object.entries(places).reduce((text, [name, place]) => text.replace(`{${name}}`, place), arg)
  )
  const env = {
    PATH: process.env["PATH"],
    // What a suite sends home does not leave the machine: nobody listens there.
    HTTPS_PROXY: "http://127.0.0.1:9",
    NO_PROXY: "127.0.0.1",
    PYTHONDONTWRITEBYTECODE: "1",
    PYTHONPATH: here,
    SCHEMATHESIS_HOOKS: "schemathesis_hooks",
    SUITE_URL: url,
    SUITE_KEY: key,
    OLLAMA_HOST: url,
    OLLAMA_TEST_EXISTING: "1"
  }
  const said = yield* Effect.callback<string>((resume) => {
    // Some keep what they found in the folder where they run.
    const cwd = mkdtempSync(path.join(tmpdir(), "tgs-"))
    const clear = () => rmSync(cwd, { recursive: true, force: true, maxRetries: 5 })
    const child = execFile(program, words, { cwd, env, maxBuffer: 2 ** 28 }, (_, out, complained) =>
      resume(Effect.sync(clear).pipe(Effect.as(out + complained)))
    )
    return Effect.sync(() => {
      child.kill("SIGKILL")
      clear()
    })
  })
  const verdicts = new Map(
    [...said.matchAll(verdict)].map(([, is, test]) => [test ?? "", /PASS|✅/.test(is ?? "")])
  )
  assert.isAbove(verdicts.size, 0, said.slice(-4000))
  return { said, verdicts }
})

/** Other names for models of a server, which the gateway has then. */
const copy = Effect.fnUntraced(function* (copies: NonNullable<Suite["copies"]>, server: URL, secret: string) {
  for (const [destination, source] of Object.entries(copies)) {
    const body = JSON.stringify({ source, destination })
    const { ok } = yield* Effect.promise((signal) =>
      fetch(new URL("/api/copy", server), { method: "POST", body, signal })
    )
    assert.isTrue(ok, destination)
    yield* eventually(call("/api/tags", { secret }), ({ text }) => text.includes(`"${destination}`))
  }
})

/** What others named so stays theirs, on a server of theirs. */
const canRun = (suite: Suite): boolean =>
  canBuild(suite) && (suite.copies === undefined || (process.env["OLLAMA_URL"] ?? "") === "")

const counts = ({ verdicts }: { readonly verdicts: ReadonlyMap<string, boolean> }): string =>
  `${[...verdicts.values()].filter((passes) => passes).length} of ${verdicts.size}`

// Bodies that are made at random may be large, and a 413 says nothing of their form.
layer(layerRealGateway({ EXTRA_SURFACES: "responses,messages", MAX_REQUEST_BODY_BYTES: "16777216" }), {
  excludeTestServices: true,
  timeout: 1_800_000
})("suites of others", (it) => {
  for (const suite of suites.filter(({ name }) => chosen.some((one) => name.includes(one))))
    it.effect.skipIf(!canRun(suite))(
      `when ${suite.name} runs, then what passes at the server passes at the gateway`,
      () =>
        Effect.gen(function* () {
          const { copies = {}, environment, isOurs = false, known = {}, name } = suite
          const [{ url: server }, { url }, { secret }] = [yield* RealOllama, yield* Gateway, yield* newKey()]
          yield* copy(copies, server, secret)
          const reached = (to: string) =>
            environment === "go" ? keyProxy(to, server, secret) : Effect.succeed(to)
          const straight = isOurs ? undefined : yield* run(suite, yield* reached(server.origin), secret)
          const through = yield* run(suite, yield* reached(url), secret)
          yield* Console.log(
            `${name}: ${straight === undefined ? "" : `${counts(straight)} straight, `}${counts(through)} through the gateway`
          )
          const isKnown = (test: string) =>
            Object.keys(known).some((one) => one === test || one.startsWith(`${test}/`))
          const broken = [...through.verdicts].filter(
            ([test, passes]) => !passes && !isKnown(test) && straight?.verdicts.get(test) !== false
          )
          assert.deepStrictEqual(broken, [], through.said.replaceAll(/(?<=^.{500}).*$/gm, "…").slice(-20_000))
        }),
      1_800_000
    )
})
