/**
 * `node bench/commands.ts`: how long each command takes, from the bundle and as an operator types it, on a real Postgres, a real Redis
 * and a gateway that runs, with 500 keys. Each command runs `--runs 5` times; the least and the median are printed, in ms, the slowest
 * first. Exit code 1 when one fails or takes more than half a second at best. `--only set-` leaves the others out.
 */
import { spawn } from "node:child_process"
import { mkdtempSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import { loadavg, tmpdir } from "node:os"
import * as path from "node:path"
import { parseArgs } from "node:util"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect, Redacted } from "effect"
import { commands } from "../cli/program.ts"
import { makeDemoBackend } from "../src/backend/demo/DemoBackend.ts"
import { makeReplica } from "../lab/scale/World.ts"
import { listening } from "../test/support/listening.ts"
import { durable, makePostgresClusterWith } from "../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../test/support/servers/RedisServer.ts"

const { only, runs } = parseArgs({
  options: { only: { type: "string", default: "" }, runs: { type: "string", default: "5" } }
}).values

const most = 500

/** A command, and what is typed before it and not measured. `#` is another number each time. */
const lines: ReadonlyArray<string | readonly [before: string, line: string]> = [
  "create-tenant --name tenant#",
  "list-tenants",
  ["create-tenant --name off#", "disable-tenant --tenant off#"],
  ["create-tenant --name on#", "enable-tenant --tenant on#"],
  ["create-tenant --name old#", "rename-tenant --tenant old# --name new#"],
  ["create-tenant --name gone#", "delete-tenant --tenant gone#"],
  "set-models --tenant acme --alias fast#=demo-chat --num-ctx 4096",
  "set-models --key anna --models demo-chat",
  "list-models --tenant acme",
  "show-usage --tenant acme --period month",
  "show-usage --key webui --user ada --period month",
  "create-key --tenant acme --name key#",
  "create-keys --tenant acme --names FOLDER/one# --out FOLDER/one#.csv",
  "list-keys",
  "list-keys --tenant acme --name anna",
  "list-keys --expiring 30d",
  "show-key --key anna",
  ["create-key --tenant acme --name rotated#", "rotate-key --key rotated# --grace 1h"],
  ["create-key --tenant acme --name revoked#", "revoke-key --key revoked# --stop-running"],
  ["create-key --tenant acme --name moved#", "move-key --key moved# --tenant other"],
  "disable-key --key off --stop-running",
  "enable-key --key off",
  "set-budget --key anna --daily #000 --weekly 1M",
  "set-budget --key webui --user ada --daily #000",
  "set-budget --key webui --each-user --daily #000",
  "set-budget --tenant acme --monthly #000000",
  "add-budget --key anna --tokens 50000 --until fri",
  "show-budget --key anna",
  "show-budget --key webui --user ada",
  "set-end-user --key anna --header X-User",
  "block-user --key webui --user bob --yes",
  "unblock-user --key webui --user bob --yes",
  "export-user --key webui --user ada",
  "erase-user --key webui --user bob --yes",
  "set-prompt-log --key anna --on --retention-days 7",
  "show-prompt-log --key anna",
  "erase-prompt-log --key anna",
  "set-limits --key anna --rpm 1#",
  "set-limits --key webui --user ada --rpm 1#",
  "set-limits --key webui --each-user --rpm 1#",
  "set-limits --key anna --model demo-chat --daily #000",
  "set-limits --tenant acme --model demo-chat --rpm 10#",
  "set-limits --tenant acme --rpm 10#",
  "export",
  "apply -f FOLDER/all.yaml --dry-run",
  "apply -f FOLDER/all.yaml",
  "report --by key --month this",
  "requests --tenant acme",
  "requests --open",
  "show-request REQUEST",
  "reconcile",
  "status",
  "doctor",
  "test-alert",
  "connect codex --url GATEWAY --model demo-chat --key-file FOLDER/key",
  "migrate",
  "migrate --plan",
  "set-limits --help"
]

/** Runs until it is stopped. */
const endless = "serve"

const nameOf = (line: string): string => line.split(" ")[0] ?? ""

interface Ran {
  readonly ms: number
  readonly code: number | null
  readonly out: string
}

const run = (words: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  Effect.callback<Ran>((resume) => {
    const begun = performance.now()
    const child = spawn(process.execPath, ["cli/tollgate.js", ...words], {
      cwd: path.resolve(import.meta.dirname, ".."),
      env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let out = ""
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => void (out += text))
    child.on("close", (code) => resume(Effect.succeed({ ms: performance.now() - begun, code, out })))
  })

const ask = (gateway: string, key: string, user: string) =>
  Effect.promise(async () => {
    const answer = await fetch(`${gateway}/api/chat`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-user": user },
      body: JSON.stringify({ model: "demo-chat", stream: false, messages: [{ role: "user", content: "hi" }] })
    })
    await answer.text()
    if (answer.status !== 200) throw new Error(`the gateway answers ${answer.status}`)
    return answer.headers.get("x-request-id") ?? ""
  })

const main = Effect.gen(function* () {
  const folder = mkdtempSync(path.join(tmpdir(), "tollgate-commands-"))
  const postgres = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis())
  const { url: backend } = yield* makeDemoBackend
  const receiver = createServer((request, response) => void request.resume().on("end", () => response.end()))
  const stores = {
    DATABASE_URL: Redacted.value(postgres.url("postgres")),
    REDIS_URL: redis.url,
    BACKEND_URL: String(backend),
    ALERT_WEBHOOK_URL: yield* listening(receiver)
  }
  const type = Effect.fnUntraced(function* (line: string) {
    const done = yield* run(line.split(" "), stores)
    if (done.code !== 0) return yield* Effect.die(new Error(`tollgate ${line}: ${done.code}\n${done.out}`))
    return done
  })
  yield* type("migrate")
  const { url: gateway } = yield* makeReplica({ NODE_ENV: "production", SHUTDOWN_DRAIN_MS: "0", ...stores })
  for (const tenant of ["acme", "other"]) yield* type(`create-tenant --name ${tenant} --allow-all-models`)
  writeFileSync(path.join(folder, "many"), Array.from({ length: 500 }, (_, n) => `person${n}`).join("\n"))
  yield* type(`create-keys --tenant acme --names ${folder}/many --out ${folder}/many.csv --daily 1M`)
  yield* type("create-key --tenant acme --name off")
  const keyOf = (line: string) => Effect.map(type(line), ({ out }) => /tg_\w{41}/.exec(out)?.[0] ?? "")
  const anna = yield* keyOf("create-key --tenant acme --name anna --expires-in 20d")
  const webui = yield* keyOf("create-key --tenant acme --name webui --end-user-header X-User")
  yield* type("set-limits --key webui --each-user --rpm 600")
  writeFileSync(path.join(folder, "key"), anna)
  writeFileSync(path.join(folder, "all.yaml"), (yield* type("export")).out)
  for (const user of ["ada", "bob"]) yield* ask(gateway, webui, user)
  const request = yield* ask(gateway, anna, "")

  let number = 10
  const typed = (line: string) =>
    line
      .replaceAll("FOLDER", folder)
      .replaceAll("GATEWAY", gateway)
      .replaceAll("REQUEST", request)
      .replaceAll("#", String(number))
  const chosen = lines.filter((line) => nameOf(typeof line === "string" ? line : line[1]).includes(only))
  const measured = yield* Effect.forEach(chosen, (both) =>
    Effect.gen(function* () {
      const [before, line] = typeof both === "string" ? [undefined, both] : both
      const took: Array<number> = []
      for (let n = 0; n < Number(runs); n += 1) {
        number += 1
        writeFileSync(path.join(folder, `one${number}`), `single${number}`)
        if (before !== undefined) yield* type(typed(before))
        took.push((yield* type(typed(line))).ms)
      }
      const [least = Number.NaN, middle = Number.NaN] = ((sorted) => [
        sorted[0],
        sorted[Math.floor(sorted.length / 2)]
      ])(took.toSorted((one, other) => one - other))
      return { line, least, middle }
    })
  )
  const left = commands.filter(
    (name) =>
      name !== endless && !lines.some((line) => nameOf(typeof line === "string" ? line : line[1]) === name)
  )
  for (const { least, line, middle } of measured.toSorted((one, other) => other.least - one.least))
    yield* Console.log(`${least.toFixed(0).padStart(5)} ${middle.toFixed(0).padStart(5)}  ${line}`)
  yield* Console.log(
    `the least and the median of ${runs} runs, ms; load ${loadavg()
      .map((load) => load.toFixed(1))
      .join(" ")}`
  )
  if (left.length > 0) yield* Console.log(`not measured: ${left.join(", ")}`)
  if (left.length > 0 || measured.some(({ least }) => least > most)) process.exitCode = 1
})

NodeRuntime.runMain(Effect.scoped(main))
