import { existsSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Schedule } from "effect"
import { embeddedPostgres } from "../../src/infra/embedded/EmbeddedPostgres.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { folder, parent, visit, visits } from "../support/embedded.ts"
import { maxWaitMs } from "../support/wait.ts"

it.live("when it is started again, then its data are there, and its socket is gone after the end", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    assert.strictEqual(yield* visit(dataDir), 1)
    assert.strictEqual(yield* visit(dataDir), 2)
    const { path: socket } = yield* Effect.scoped(embeddedPostgres({ dataDir }))
    assert.isFalse(existsSync(path.dirname(socket)))
  })
)

it.live("when its folder is below one that only its owner may enter, then it works", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* visit(yield* folder(0o700)), 1)
  })
)

it.live("when root's database was run in another way, then it is moved to the new one", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o700)
    yield* visit(dataDir)
    yield* Effect.promise(() => fs.chmod(path.dirname(dataDir), 0o755))
    assert.strictEqual(yield* visit(dataDir), 2)
    yield* Effect.promise(() => fs.chmod(path.dirname(dataDir), 0o700))
    assert.strictEqual(yield* visit(dataDir), 3)
  })
)

it.live("when its folder is very deep, then the path of its socket is still short", () =>
  Effect.gen(function* () {
    const dataDir = path.join(yield* folder(0o755), "x".repeat(100), "y".repeat(100))
    const { path: socket } = yield* Effect.scoped(embeddedPostgres({ dataDir }))
    assert.isBelow(Buffer.byteLength(socket), 104)
  })
)

it.live("when a second one starts on the folder, then it is refused and the first goes on", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const first = yield* embeddedPostgres({ dataDir })
    const refused = yield* Effect.flip(Effect.scoped(embeddedPostgres({ dataDir })))
    assert.strictEqual(refused._tag, "DataDirInUse")
    assert.strictEqual(
      yield* visits.pipe(Effect.provide(layerPostgres({ url: first, maxConnections: 1 }))),
      1
    )
  })
)

it.live("when two first starts come at once, then one database is made and one of them runs", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const start = Effect.exit(embeddedPostgres({ dataDir }))
    const exits = yield* Effect.all([start, start], { concurrency: 2 })
    assert.strictEqual(exits.filter(Exit.isSuccess).length, 1)
    const left = yield* Effect.promise(() => fs.readdir(dataDir))
    assert.deepStrictEqual(
      left.filter((name) => name.startsWith("postgres-draft")),
      []
    )
  })
)

it.live("when a lock names a process number that now belongs to another program, then it starts", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    yield* visit(dataDir)
    // What a reboot leaves: the number of a process that lives and is no Postgres.
    const lines = [
      process.pid,
      path.join(dataDir, "postgres"),
      1_700_000_000,
      5432,
      "/nowhere",
      "",
      "  1  1",
      "ready"
    ]
    yield* Effect.promise(() => fs.writeFile(path.join(dataDir, "postgres/postmaster.pid"), lines.join("\n")))
    assert.strictEqual(yield* visit(dataDir), 2)
  })
)

it.live("when a first start was cut short, then the next one removes its rest", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const draft = path.join(dataDir, "postgres-draft-4194305-abc")
    yield* Effect.promise(() => fs.mkdir(draft, { recursive: true, mode: 0o755 }))
    yield* Effect.promise(() => fs.chmod(dataDir, 0o711))
    assert.strictEqual(yield* visit(dataDir), 1)
    assert.isFalse(existsSync(draft))
  })
)

it.live("when its parent is killed, then it ends, and the next start has the data", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const { child, socket } = yield* parent(dataDir)
    child.kill("SIGKILL")
    yield* Effect.suspend(() =>
      existsSync(path.join(dataDir, "postgres/postmaster.pid")) ? Effect.fail("still there") : Effect.void
    ).pipe(Effect.retry(Schedule.spaced("50 millis")), Effect.timeout(maxWaitMs))
    assert.strictEqual(yield* visit(dataDir), 1)
    assert.isFalse(existsSync(path.dirname(socket)))
  })
)

it.live("when its parent was just killed, then it can be started again at once", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const { child } = yield* parent(dataDir)
    child.kill("SIGKILL")
    assert.strictEqual(yield* visit(dataDir), 1)
  })
)
