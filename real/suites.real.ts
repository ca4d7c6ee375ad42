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
import { Gateway, newKey } from "../test/support/Gateway.ts"
import { installPython } from "./clients/install.ts"
import { layerRealGateway } from "./RealGateway.ts"
import { RealOllama } from "./RealOllama.ts"
import { type Suite, suites } from "./suites/catalogue.ts"

const here = path.join(import.meta.dirname, "suites")
const openapi = path.resolve(import.meta.dirname, "../openapi.json")
const chosen = (process.env["SUITES"] ?? "").split(",")

/** The tests of a run, and whether each passed. The run itself may fail: some tests do straight at the server. */
const run = Effect.fnUntraced(function* ({ args, environment, verdict }: Suite, url: string, key: string) {
  const python = yield* installPython(environment)
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
    SUITE_KEY: key
  }
  const said = yield* Effect.callback<string>((resume) => {
    // Some keep what they found in the folder where they run.
    const cwd = mkdtempSync(path.join(tmpdir(), "tgs-"))
    const clear = () => rmSync(cwd, { recursive: true, force: true, maxRetries: 5 })
    const child = execFile(python, words, { cwd, env, maxBuffer: 2 ** 28 }, (_, out, complained) =>
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

const counts = ({ verdicts }: { readonly verdicts: ReadonlyMap<string, boolean> }): string =>
  `${[...verdicts.values()].filter((passes) => passes).length} of ${verdicts.size}`

// Bodies that are made at random may be large, and a 413 says nothing of their form.
layer(layerRealGateway({ EXTRA_SURFACES: "responses,messages", MAX_REQUEST_BODY_BYTES: "16777216" }), {
  excludeTestServices: true,
  timeout: 1_800_000
})("suites of others", (it) => {
  for (const suite of suites.filter(({ name }) => chosen.some((one) => name.includes(one))))
    it.effect(
      `when ${suite.name} runs, then what passes at the server passes at the gateway`,
      () =>
        Effect.gen(function* () {
          const { isOurs = false, known = {}, name } = suite
          const [{ url: server }, { url }, { secret }] = [yield* RealOllama, yield* Gateway, yield* newKey()]
          const straight = isOurs ? undefined : yield* run(suite, server.origin, secret)
          const through = yield* run(suite, url, secret)
          yield* Console.log(
            `${name}: ${straight === undefined ? "" : `${counts(straight)} straight, `}${counts(through)} through the gateway`
          )
          const broken = [...through.verdicts].filter(
            ([test, passes]) => !passes && !(test in known) && straight?.verdicts.get(test) !== false
          )
          assert.deepStrictEqual(broken, [], through.said.replaceAll(/(?<=^.{500}).*$/gm, "…").slice(-20_000))
        }),
      1_800_000
    )
})
