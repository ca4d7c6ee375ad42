/**
 * The image without an engine: its start command, user, environment, health check and stop signal, read from the
 * Dockerfile and run as processes on a copy of what is copied into it.
 */
import { spawnSync } from "node:child_process"
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Data, Effect, Fiber, Layer, Redacted, Schedule } from "effect"
import { fake } from "../support/FakeBackend.ts"
import { Fake, hello, layerFake } from "../support/Gateway.ts"
import {
  exitOf,
  launch as launchIn,
  readImage,
  run as runIn,
  userOf,
  type Variables
} from "../support/Image.ts"
import { freePort } from "../support/servers/processes.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerTestRedis, TestRedis } from "../support/TestRedis.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"
import { ask } from "../support/posting.ts"

const root = path.resolve(import.meta.dirname, "../..")
const image = readImage(root)

/** What the image has under /app, owned by somebody else than the user who runs it. */
const app = Effect.map(temporaryFolder, (folder) => {
  chmodSync(folder, 0o755)
  for (const name of ["package.json", "package-lock.json", ...image.copied])
    cpSync(path.join(root, name), path.join(folder, name), { recursive: true })
  symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"))
  const { status, stderr } = spawnSync(process.execPath, image.build.split(" ").slice(1), {
    cwd: folder,
    encoding: "utf8"
  })
  assert.strictEqual(status, 0, stderr)
  spawnSync("chmod", ["-R", "a+rX", folder])
  mkdirSync(path.join(folder, "bin"))
  symlinkSync(path.join(folder, "cli/tollgate.js"), path.join(folder, "bin/tollgate"))
  return folder
})

class Unhealthy extends Data.TaggedError("Unhealthy")<{ readonly message: string }> {}

const somebody = userOf(image, root)
const launch = (folder: string, command: ReadonlyArray<string>, env: Variables) =>
  launchIn(image, folder, command, env)
const run = (folder: string, command: ReadonlyArray<string>, env: Variables) =>
  runIn(image, folder, command, env)

const tree = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(
    (name) => !name.startsWith("node_modules")
  )

inWorld(Layer.mergeAll(TestPostgres, layerTestRedis, layerFake))("the image's processes", (test) => {
  test("when it runs as its user, then it serves without writing, is healthy, and ends its streams on the stop signal", function* () {
    const folder = yield* app
    const before = tree(folder)
    const [database, redis, backend] = [yield* TestDatabase, yield* TestRedis, yield* Fake]
    const port = yield* freePort
    const env = {
      DATABASE_URL: Redacted.value(database.url),
      REDIS_URL: redis.url,
      BACKEND_URL: backend.url,
      // Nobody collects traces there, and the bundle has what sends them.
      OTLP_ENDPOINT: "http://127.0.0.1:9",
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
      ask(`http://127.0.0.1:${port}/api/chat`, { secret, body: hello() })
    )
    yield* backend.until(() => backend.requests.length === 1)
    assert.isTrue(
      spawnSync("kill", ["-s", image.stopSignal.replace("SIG", ""), String(child.pid)]).status === 0
    )
    const { text } = yield* Fiber.join(stream)
    assert.strictEqual(text.trimEnd().split("\n").length, 16, text)
    assert.include(text.trimEnd().split("\n").at(-1), '"done":true')
    assert.strictEqual(yield* exitOf(child), 0)
    assert.strictEqual((yield* run(folder, image.health, env)).code, 1)
    assert.deepStrictEqual(tree(folder), before)
    assert.notInclude(said.out + said.err, secret)
  })
})

const test = testWith(it.live)

test("when the image has no settings, then it says which ones it needs, and ends with 78", function* () {
  const folder = yield* app
  const { code, err, out } = yield* run(folder, image.start, {})
  assert.strictEqual(code, 78)
  for (const name of ["DATABASE_URL", "REDIS_URL", "BACKEND_URL"]) assert.include(err + out, name)
})

it("when the image is built, then it runs as an ordinary user, and has the files of the product", () => {
  assert.isAtLeast(image.user, 10_000)
  assert.strictEqual(image.stopSignal, "SIGTERM")
  assert.deepStrictEqual(image.copied.toSorted(), ["build", "cli", "migrations", "playground", "src"])
  assert.strictEqual(image.env["NODE_ENV"], "production")
})
