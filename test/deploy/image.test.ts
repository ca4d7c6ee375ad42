/**
 * The image without an engine: its start command, user, environment, health check and stop signal, read from the
 * Dockerfile and run as processes on a copy of what is copied into it.
 */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync
} from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it, layer } from "@effect/vitest"
import { Data, Effect, Fiber, Layer, Redacted, Schedule, Schema } from "effect"
import { fake } from "../support/FakeBackend.ts"
import { Fake, layerFake } from "../support/Gateway.ts"
import { freePort } from "../support/servers/processes.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis, TestRedis } from "../support/TestRedis.ts"

const root = path.resolve(import.meta.dirname, "../..")
const dockerfile = readFileSync(path.join(root, "Dockerfile"), "utf8").replaceAll("\\\n", " ")

const line = (start: RegExp): string =>
  new RegExp(`^(?:${start.source})\\s+(.*)$`, "m").exec(dockerfile)?.[1] ?? ""
const words = Schema.decodeUnknownSync(Schema.fromJsonString(Schema.NonEmptyArray(Schema.String)))

const image = {
  start: words(line(/CMD/)),
  health: words(line(/HEALTHCHECK .*CMD/)),
  stopSignal: line(/STOPSIGNAL/),
  user: Number(line(/USER/).split(":")[0]),
  env: Object.fromEntries(
    line(/ENV/)
      .split(" ")
      .map((pair) => pair.split("="))
  ),
  copied: [...dockerfile.matchAll(/^COPY (\w+) \1$/gm)].map((match) => match[1] ?? "")
}

/** What the image has under /app, owned by somebody else than the user who runs it. */
const app = Effect.acquireRelease(
  Effect.sync(() => {
    const folder = mkdtempSync(path.join(tmpdir(), "tgi-"))
    chmodSync(folder, 0o755)
    for (const name of ["package.json", ...image.copied])
      cpSync(path.join(root, name), path.join(folder, name), { recursive: true })
    symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"))
    mkdirSync(path.join(folder, "bin"))
    symlinkSync(path.join(folder, "cli/tollgate.js"), path.join(folder, "bin/tollgate"))
    return folder
  }),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

class Unhealthy extends Data.TaggedError("Unhealthy")<{ readonly message: string }> {}

/** Whether others may walk down to here: a checkout in root's home is nobody else's to read. */
const open = (folder: string): boolean =>
  (statSync(folder).mode & 0o001) !== 0 && (folder === "/" || open(path.dirname(folder)))

/** Only root can become somebody else; then every file above is read-only for the process. */
const somebody = process.getuid?.() === 0 && open(root) ? { uid: image.user, gid: image.user } : {}

const environment = (folder: string, more: Readonly<Record<string, string>>) => ({
  ...image.env,
  PATH: [path.dirname(process.execPath), path.join(folder, "bin"), "/usr/bin", "/bin"].join(":"),
  ...more
})

const exitOf = (child: ChildProcess) =>
  Effect.callback<number | null>((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.succeed(child.exitCode))
    child.once("exit", (code) => resume(Effect.succeed(code)))
  })

const launch = (folder: string, command: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(command[0] ?? "", command.slice(1), {
        cwd: folder,
        env: environment(folder, env),
        stdio: ["ignore", "pipe", "pipe"],
        ...somebody
      })
      const said = { out: "", err: "" }
      child.stdout.setEncoding("utf8").on("data", (text: string) => (said.out += text))
      child.stderr.setEncoding("utf8").on("data", (text: string) => (said.err += text))
      return { child, said }
    }),
    ({ child }) => Effect.sync(() => void child.kill("SIGKILL"))
  )

const run = (folder: string, command: ReadonlyArray<string>, env: Readonly<Record<string, string>>) =>
  Effect.scoped(
    Effect.flatMap(launch(folder, command, env), ({ child, said }) =>
      Effect.map(exitOf(child), (code) => ({ code, ...said }))
    )
  )

const tree = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(
    (name) => !name.startsWith("node_modules")
  )

layer(Layer.mergeAll(TestPostgres, layerTestRedis, layerFake), {
  excludeTestServices: true,
  timeout: 60_000
})("the image's processes", (it) => {
  it.effect(
    "when it runs as its user, then it serves without writing, is healthy, and ends its streams on the stop signal",
    () =>
      Effect.gen(function* () {
        const folder = yield* app
        const before = tree(folder)
        const [database, redis, backend] = [yield* TestDatabase, yield* TestRedis, yield* Fake]
        const port = yield* freePort
        const env = {
          DATABASE_URL: Redacted.value(database.url),
          REDIS_URL: redis.url,
          BACKEND_URL: backend.url,
          HOST: "127.0.0.1",
          PORT: String(port),
          SHUTDOWN_DRAIN_MS: "200"
        }
        const tollgate = (...args: ReadonlyArray<string>) => run(folder, ["tollgate", ...args], env)
        assert.strictEqual((yield* run(folder, image.health, env)).code, 1)
        const { child, said } = yield* launch(folder, image.start, env)
        yield* run(folder, image.health, env).pipe(
          Effect.filterOrFail(({ code }) => code === 0),
          Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 100 }),
          Effect.mapError(() => new Unhealthy({ message: said.out + said.err }))
        )
        if (somebody.uid !== undefined) {
          const uid = /^Uid:\s+(\d+)/m.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1]
          assert.strictEqual(uid, String(image.user))
        }

        assert.strictEqual((yield* tollgate("create-tenant", "--name", "t", "--allow-all-models")).code, 0)
        const secret = (yield* tollgate("create-key", "--tenant", "t", "--name", "k")).out.trim()
        backend.script({
          does: "stream",
          lines: [...Array.from({ length: 15 }, (_, i) => fake.chat(` ${i}`)), fake.done()],
          gapMs: 100
        })
        const stream = yield* Effect.forkChild(
          Effect.promise(() =>
            fetch(`http://127.0.0.1:${port}/api/chat`, {
              method: "POST",
              headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
              body: JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hello" }] })
            }).then((response) => response.text())
          )
        )
        yield* backend.until(() => backend.requests.length === 1)
        assert.isTrue(
          spawnSync("kill", ["-s", image.stopSignal.replace("SIG", ""), String(child.pid)]).status === 0
        )
        const text = yield* Fiber.join(stream)
        assert.strictEqual(text.trimEnd().split("\n").length, 16, text)
        assert.include(text.trimEnd().split("\n").at(-1), '"done":true')
        assert.strictEqual(yield* exitOf(child), 0)
        assert.strictEqual((yield* run(folder, image.health, env)).code, 1)
        assert.deepStrictEqual(tree(folder), before)
        assert.notInclude(said.out + said.err, secret)
      }).pipe(Effect.scoped),
    { timeout: 60_000 }
  )
})

it.live("when the image has no settings, then it says which ones it needs, and ends with 78", () =>
  Effect.gen(function* () {
    const folder = yield* app
    const { code, err, out } = yield* run(folder, image.start, {})
    assert.strictEqual(code, 78)
    for (const name of ["DATABASE_URL", "REDIS_URL", "BACKEND_URL"]) assert.include(err + out, name)
  }).pipe(Effect.scoped)
)

it("when the image is built, then it runs as an ordinary user, and has the files of the product", () => {
  assert.isAtLeast(image.user, 10_000)
  assert.strictEqual(image.stopSignal, "SIGTERM")
  assert.deepStrictEqual(image.copied.toSorted(), ["cli", "migrations", "src"])
  assert.strictEqual(image.env["NODE_ENV"], "production")
})
