/** The Python code of the playground, run as pasted with the packages that it names. */
import { execFile } from "node:child_process"
import { writeFileSync } from "node:fs"
import * as path from "node:path"
import { promisify } from "node:util"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { snippetOf } from "../playground/script/snippets.js"
import { surfaces } from "../playground/script/surfaces.js"
import { Fake, Gateway, layerGateway, newKey } from "../test/support/Gateway.ts"
import { commandOf } from "./clients/install.ts"
import { temporaryFolder } from "../test/support/temporaryFolder.ts"

const run = promisify(execFile)

const awkward = `It's "quoted", {braces} \\n ${"\u{1f600}"} $HOME\nJSON`

/** Everything that the page can put into a request. */
const request = {
  model: "m",
  system: awkward,
  turns: [
    { role: "user", content: awkward },
    { role: "assistant", content: "Yes.", calls: [{ id: "call_1", name: "f", arguments: { a: [], b: {} } }] },
    { role: "tool", content: "21", name: "f", callId: "call_1" }
  ],
  format: { mode: "schema", schema: { type: "object", properties: { a: { type: ["string", "null"] } } } },
  tools: [
    {
      type: "function",
      function: { name: "f", description: "g", parameters: { type: "object", properties: {}, required: [] } }
    }
  ],
  reasoning: ""
}

layer(layerGateway(), { excludeTestServices: true, timeout: 600_000 })(
  "the Python code of the playground",
  (it) => {
    for (const [surface, environment, options] of [
      ["native", "ollama", { temperature: 0.5, num_predict: 5, stop: ["END"] }],
      ["openai", "openai", { temperature: 0.5, max_completion_tokens: 5, stop: ["END"] }]
    ] as const)
      it.effect(
        `when the code for the package ${environment} is pasted, then it runs and sends the same request`,
        () =>
          Effect.gen(function* () {
            const [fake, { url }, { secret }, folder] = [
              yield* Fake,
              yield* Gateway,
              yield* newKey(),
              yield* temporaryFolder
            ]
            const { body, path: target } = surfaces[surface]
            const code = snippetOf({
              surface,
              language: "python",
              origin: url,
              path: target,
              body: body({ ...request, options })
            })
            const file = path.join(folder, "ask.py")
            writeFileSync(file, code)
            const [python] = yield* commandOf(environment, "")
            const { stdout } = yield* Effect.promise(() =>
              run(python, [file], { env: { ...process.env, TOLLGATE_KEY: secret } })
            )
            assert.include(stdout, "Hello world!")
            const sent = fake.requests.at(-1)?.body
            assert.deepInclude(sent?.["options"], { temperature: 0.5, num_predict: 5, stop: ["END"] })
            assert.include(
              JSON.stringify(sent?.["messages"]),
              JSON.stringify({ role: "user", content: awkward })
            )
            assert.include(JSON.stringify(sent?.["messages"]), '"arguments":{"a":[],"b":{}}')
            assert.include(JSON.stringify(sent?.["tools"]), '"name":"f"')
            assert.include(JSON.stringify(sent?.["format"]), '"properties"')
          }).pipe(Effect.scoped)
      )
  }
)
