/** What the gateway says when it cannot start: one line for each problem, and an exit code. */
import { execFile } from "node:child_process"
import { once } from "node:events"
import { createServer } from "node:net"
import { fileURLToPath } from "node:url"
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { embeddedPostgres } from "../../src/infra/embedded/EmbeddedPostgres.ts"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { cannotListen, startupError } from "../../src/startup/StartupError.ts"
import { folder } from "../support/embedded.ts"
import { compileCache, freePort } from "../support/servers/processes.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const main = fileURLToPath(new URL("../../src/main.ts", import.meta.url))

const servers = {
  NODE_ENV: "production",
  DATABASE_URL: "postgres://127.0.0.1:1/none",
  REDIS_URL: "redis://127.0.0.1:1",
  BACKEND_URL: "http://127.0.0.1:1",
  LOG_LEVEL: "none"
}

/** Starts a gateway that must end. Returns its exit code and what it says on stderr. */
const start = (env: Readonly<Record<string, string>>) =>
  Effect.callback<readonly [code: number | string | null | undefined, said: string]>((resume) => {
    const child = execFile(
      process.execPath,
      [main],
      { env: { PATH: process.env["PATH"], NODE_COMPILE_CACHE: compileCache, ...servers, ...env } },
      (error, _, said) => resume(Effect.succeed([error === null ? 0 : error.code, said]))
    )
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

const test = testWith(it.live)

test("when another program listens there, then the line says so, and the exit code is 1", function* () {
  const port = yield* freePort
  const other = createServer()
  yield* Effect.acquireRelease(
    Effect.promise(() => once(other.listen(port, "127.0.0.1"), "listening")),
    () => Effect.sync(() => other.close())
  )
  assert.deepStrictEqual(yield* start({ PORT: String(port) }), [
    1,
    `tollgate: cannot listen on 127.0.0.1:${port}: another program listens there; stop it, or set another PORT (EADDRINUSE)\n`
  ])
})

test("when Node is too old, then one line says so, and what has the right one", function* () {
  const older =
    "data:text/javascript,Object.defineProperty(process,'versions',{value:{...process.versions,node:'20.20.2'}})"
  const starter = fileURLToPath(new URL("../../build/start.js", import.meta.url))
  const [code, said] = yield* Effect.callback<readonly [number | string | null | undefined, string]>(
    (resume) => {
      const child = execFile(process.execPath, ["--import", older, starter], (error, _, said) =>
        resume(Effect.succeed([error === null ? 0 : error.code, said]))
      )
      return Effect.sync(() => void child.kill("SIGKILL"))
    }
  )
  assert.deepStrictEqual(
    [code, said],
    [1, 'tollgate: it needs Node 24.14 or later (this is 20.20.2): run "npm start", which has its own\n']
  )
})

test("when the address is not this machine's, then the line says so", function* () {
  const [code, said] = yield* start({ HOST: "203.0.113.1", PORT: "0" })
  assert.deepStrictEqual(
    [code, said],
    [
      1,
      "tollgate: cannot listen on 203.0.113.1:0: this machine does not have this address; set HOST to one that it has (EADDRNOTAVAIL)\n"
    ]
  )
})

test("when no folder can be made at DATA_DIR, then the line says so at once", function* () {
  const embedded = { NODE_ENV: "", DATABASE_URL: "", REDIS_URL: "", DATA_DIR: "/proc/nope/data" }
  const [code, said] = yield* start({ ...embedded, PORT: "0" })
  assert.strictEqual(code, 1)
  assert.match(
    said,
    /^tollgate: \/proc\/nope\/data cannot be used: give this user the right .* \(ENOENT\)\n$/
  )
})

it("when another program has said several lines, then each is a line", () => {
  assert.deepStrictEqual(startupError("initdb failed (exit):\n  no space left\n").lines, [
    "initdb failed (exit):",
    "no space left"
  ])
})

test("when a tenant of the embedded database cannot be read, then that does not stop the start", function* () {
  const dataDir = yield* folder(0o755)
  const oddTenant = sql`INSERT INTO tenants (name, rpm, tpm, concurrent, model_aliases) VALUES ('odd', 1, 1, 1, '{"a":5}')`
  yield* Effect.scoped(
    Effect.flatMap(embeddedPostgres({ dataDir }), (url) =>
      Effect.andThen(migrate, oddTenant).pipe(
        Effect.provide(layerPostgres({ url, maxConnections: 1 }), { local: true })
      )
    )
  )
  const embedded = { NODE_ENV: "", DATABASE_URL: "", REDIS_URL: "", DATA_DIR: dataDir }
  const [, said] = yield* start({ ...embedded, HOST: "203.0.113.1", PORT: "0" })
  assert.match(said, /^tollgate: cannot listen on /)
})

it("when the port needs another user, or the cause is not known, then the line has the cause", () => {
  const failed = (code: string) => Object.assign(new Error(`listen ${code}: no`), { code })
  assert.include(
    cannotListen("::", 81, failed("EACCES")),
    "[::]:81: this user may not use this port; set PORT"
  )
  assert.strictEqual(cannotListen("::1", 81, failed("EIO")), "cannot listen on [::1]:81: listen EIO: no")
})

test("when settings are misspelt or wrong, then there is a line for each, and the exit code is 78", function* () {
  const [code, said] = yield* start({ BACKND_URL: "hidden-word", PORT: "x" })
  assert.strictEqual(code, 78)
  const lines = said.trimEnd().split("\n")
  assert.deepStrictEqual(lines.map((line) => line.split(" ")[1]).toSorted(), ["BACKND_URL:", "PORT:"])
  assert.notInclude(said, "hidden-word")
})
