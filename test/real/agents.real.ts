/**
 * Coding agents as `tollgate connect` sets them up, offline: each writes a file with its own tool, and shows its user what was
 * refused. The model server is the tests' own, so nothing but the agents has to be installed. `AGENTS=codex,pi` runs some.
 */
import { spawn } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { clients } from "../../cli/connect/clients.ts"
import { commandOf, filesOf, freshText } from "../../cli/connect/files.ts"
import { Fake, Gateway, layerGateway, newKey } from "../support/Gateway.ts"
import { agentModel, saidAtTheEnd, written } from "./agents/model.ts"
import { installAgents } from "./clients/install.ts"

/** What follows the command of `connect`, so that it asks once and may write. */
const once: Readonly<Record<string, string>> = {
  codex: "exec --skip-git-repo-check --sandbox danger-full-access",
  claude: "--permission-mode acceptEdits -p",
  copilot: "--allow-all-tools -p",
  opencode: "run",
  qwen: "--yolo -p",
  pi: "-p",
  cline: "",
  continue: "--auto -p"
}

const chosen = (process.env["AGENTS"] ?? Object.keys(once).join(",")).split(",")

const folderOf = (name: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(path.join(tmpdir(), `tollgate-${name}-`))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  )

/** Ends what an agent left running: Cline starts a daemon of its own session. */
const endAllOf = (home: string) =>
  Effect.sync(() => {
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
        if (environment.includes(`HOME=${home}`)) process.kill(Number(pid), "SIGKILL")
      } catch {
        // It has ended, or it is somebody else's.
      }
    }
  })

interface Ran {
  readonly code: number | null
  readonly said: string
}

/** One run of the agent in a home and a project of its own. */
const ask = Effect.fnUntraced(function* (
  name: string,
  options: { readonly secret: string; readonly model: string }
) {
  const client = clients.find((one) => one.name === name)
  if (client === undefined) return yield* Effect.die(`connect has no ${name}`)
  const [bin, { url }, home, project] = [
    yield* installAgents(),
    yield* Gateway,
    yield* folderOf("home"),
    yield* folderOf("project")
  ]
  ;(yield* Fake).always(agentModel(project))
  const facts = { url, model: options.model, window: 65_536, output: 4096 }
  const atHome = (file: string) => path.join(home, file.slice(2))
  for (const file of [...filesOf(client, facts, "~/key"), { path: "~/key", content: options.secret }]) {
    mkdirSync(path.dirname(atHome(file.path)), { recursive: true })
    writeFileSync(atHome(file.path), freshText(file))
  }
  const line = `${commandOf(client, facts).replaceAll("~/", `${home}/`)} ${once[name]} 'Write the file'`
  const ran = yield* Effect.callback<Ran>((resume) => {
    const child = spawn("sh", ["-c", line], {
      cwd: project,
      // Nothing of this environment's own settings reaches an agent, and what it sends home stays here: nobody listens there.
      env: {
        PATH: `${bin}:${path.dirname(process.execPath)}:${process.env["PATH"]}`,
        HOME: home,
        LANG: "C.UTF-8",
        HTTPS_PROXY: "http://127.0.0.1:9",
        NO_PROXY: "127.0.0.1"
      },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true
    })
    let said = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (said += text))
    child.once("close", (code) => resume(Effect.succeed({ code, said })))
    // The agent has children of its own.
    return Effect.sync(() => void (child.pid !== undefined && process.kill(-child.pid, "SIGKILL")))
  }).pipe(Effect.timeout("3 minutes"), Effect.ensuring(endAllOf(home)))
  const file = path.join(project, written.file)
  return { ...ran, file: existsSync(file) ? readFileSync(file, "utf8").trimEnd() : undefined }
})

layer(layerGateway({ EXTRA_SURFACES: "responses,messages" }), {
  excludeTestServices: true,
  timeout: 3_600_000
})("coding agents as connect sets them up", (it) => {
  for (const name of chosen) {
    it.effect(
      `when ${name} is asked, then it writes a file with its own tool and shows the answer`,
      () =>
        Effect.gen(function* () {
          const { secret } = yield* newKey()
          const { code, file, said } = yield* ask(name, { secret, model: "m:latest" })
          assert.strictEqual(file, written.text, said)
          assert.include(said, saidAtTheEnd)
          assert.strictEqual(code, 0)
        }),
      600_000
    )

    it.effect(
      `when ${name} is refused, then its user learns why, and no file is written`,
      () =>
        Effect.gen(function* () {
          const { secret } = yield* newKey()
          const wrong = `${secret.slice(0, -1)}${secret.endsWith("0") ? "1" : "0"}`
          const refused = [
            { secret, model: "nobody-has:latest", words: /forbidden/i },
            { secret: wrong, model: "m:latest", words: /unauthorized/i }
          ]
          for (const { words, ...asked } of refused) {
            // Claude Code tries a 401 again for minutes, and tells nothing meanwhile.
            if (name === "claude" && asked.secret === wrong) continue
            const { file, said } = yield* ask(name, asked)
            assert.isUndefined(file, said)
            assert.match(said, name === "copilot" ? /Check your COPILOT_PROVIDER_API_KEY/ : words)
          }
        }),
      900_000
    )
  }
})
