/** Runs a coding agent as `tollgate connect` sets it up, in a home and a project of its own, with nothing beyond loopback. */
import { spawn } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { stripVTControlCharacters } from "node:util"
import { Effect } from "effect"
import { clients } from "../../cli/connect/clients.ts"
import { commandOf, filesOf, freshText } from "../../cli/connect/texts.ts"
import { Gateway } from "../../test/support/Gateway.ts"
import { installAgents } from "../clients/install.ts"
import { written } from "./model.ts"

/** What follows the command of `connect`, so that the agent asks once and may write. */
const once = {
  codex: "exec --skip-git-repo-check --sandbox danger-full-access",
  claude: "--permission-mode acceptEdits -p",
  copilot: "--allow-all-tools -p",
  opencode: "run",
  qwen: "--yolo -p",
  pi: "-p",
  cline: "",
  continue: "--auto -p"
} as const satisfies Readonly<Record<string, string>>

export type AgentName = keyof typeof once

const chosen = process.env["AGENTS"]?.split(",")
export const all: ReadonlyArray<AgentName> = [
  "codex",
  "claude",
  "copilot",
  "opencode",
  "qwen",
  "pi",
  "cline",
  "continue"
]
export const agents = all.filter((name) => chosen?.includes(name) ?? true)

const folderOf = (name: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(path.join(tmpdir(), `tollgate-${name}-`))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  )

/** Ends what an agent left running: Cline starts a daemon of its own session. */
const endAllOf = (home: string): void => {
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
      if (environment.includes(`HOME=${home}`)) process.kill(Number(pid), "SIGKILL")
    } catch {
      // It has ended, or it is somebody else's.
    }
  }
}

export interface Ran {
  /** null: it was stopped */
  readonly code: number | null
  readonly said: string
  /** the content of the file that it was asked to write */
  readonly file: string | undefined
  readonly seconds: number
}

interface Asked {
  readonly secret: string
  readonly model: string
  /** stops the agent when it is done; default: the agent runs to its end */
  readonly until?: Effect.Effect<unknown>
  /** how it is stopped: `SIGINT` is Ctrl-C in its terminal */
  readonly signal?: "SIGINT" | "SIGKILL"
}

/** Nothing of this environment's own settings reaches an agent, and what it sends home goes to a port where nobody listens. */
const environmentOf = (home: string, bin: string) => ({
  PATH: `${bin}:${path.dirname(process.execPath)}:${process.env["PATH"]}`,
  HOME: home,
  LANG: "C.UTF-8",
  HTTPS_PROXY: "http://127.0.0.1:9",
  NO_PROXY: "127.0.0.1"
})

/** An agent that was interrupted may take so long to end before it is killed. */
const graceMs = 5000

/** `prepare` gets the folder of the project before the agent starts. */
export const runAgent = Effect.fnUntraced(function* (
  name: AgentName,
  { model, secret, signal = "SIGKILL", until = Effect.never }: Asked,
  prepare: (project: string) => void = () => {}
) {
  const client = clients.find((one) => one.name === name)
  if (client === undefined) return yield* Effect.die(`connect has no ${name}`)
  const [bin, { url }, home, project] = [
    yield* installAgents(),
    yield* Gateway,
    yield* folderOf("home"),
    yield* folderOf("project")
  ]
  prepare(project)
  const facts = { url, model, window: 65_536, output: 4096 }
  const atHome = (file: string) => path.join(home, file.slice(2))
  for (const file of [...filesOf(client, facts, "~/key"), { path: "~/key", content: secret }]) {
    mkdirSync(path.dirname(atHome(file.path)), { recursive: true })
    writeFileSync(atHome(file.path), freshText(file))
  }
  const line = `${commandOf(client, facts).replaceAll("~/", `${home}/`)} ${once[name]} 'Write the file'`
  const began = performance.now()
  let said = ""
  const stop = yield* Effect.forkChild(until)
  const code = yield* Effect.callback<number | null>((resume) => {
    // The agent has children of its own.
    const child = spawn("sh", ["-c", line], {
      cwd: project,
      env: environmentOf(home, bin),
      stdio: ["ignore", "pipe", "pipe"],
      detached: true
    })
    const send = (one: NodeJS.Signals) => {
      if (child.pid === undefined || child.exitCode !== null) return
      try {
        process.kill(-child.pid, one)
      } catch {
        // All of the group have ended.
      }
    }
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (said += text))
    let late: NodeJS.Timeout | undefined
    stop.addObserver(() => {
      send(signal)
      late = setTimeout(() => send("SIGKILL"), graceMs)
    })
    child.once("exit", () => {
      clearTimeout(late)
      endAllOf(home)
    })
    child.once("close", (code) => resume(Effect.succeed(code)))
    return Effect.sync(() => send("SIGKILL"))
  }).pipe(Effect.timeout("4 minutes"), Effect.ensuring(Effect.sync(() => endAllOf(home))))
  const file = path.join(project, written.file)
  return {
    code,
    said: stripVTControlCharacters(said),
    file: existsSync(file) ? readFileSync(file, "utf8").trimEnd() : undefined,
    seconds: Math.round((performance.now() - began) / 1000)
  } satisfies Ran
}, Effect.scoped)
