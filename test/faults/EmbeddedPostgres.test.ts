import { spawn, spawnSync } from "node:child_process"
import { existsSync, statSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { inject } from "vitest"
import { embeddedPostgres } from "../../src/infra/embedded/EmbeddedPostgres.ts"
import { writeRuntime } from "../../src/infra/embedded/RuntimeFile.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { folder, parent, visit, visits } from "../support/embedded.ts"
import { copyData } from "../support/servers/PostgresCluster.ts"
import { testWith } from "../support/testWith.ts"

const root = process.getuid?.() === 0

/** A folder with data that an earlier start made, where the first start is not the point: it takes a second. */
const used = (mode: number) =>
  Effect.tap(folder(mode), (dataDir) => {
    const data = path.join(dataDir, "postgres")
    return Effect.andThen(
      Effect.promise(() => fs.mkdir(data, { recursive: true, mode: 0o711 })),
      copyData(inject("postgres").prepared, data)
    )
  })

/** Whether every user can enter the folder. */
const isOpen = (name: string): boolean =>
  (statSync(name).mode & 0o001) !== 0 && (name === "/" || isOpen(path.dirname(name)))

/** To become another user needs root, and that user has to be able to read Node and this checkout. */
const others = root && isOpen(path.dirname(process.execPath)) && isOpen(import.meta.dirname)
const asRoot = root ? it.live : it.live.skip
const asOthers = others ? it.live : it.live.skip

const [daemon, nobody] = [1, 65_534]
const as = (uid: number) => ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"]
/** Whether a shell line of another user succeeds. */
const may = (uid: number, line: string): boolean => {
  const [command = "", ...args] = [...as(uid), "sh", "-c", line]
  return spawnSync(command, args, { stdio: "ignore" }).status === 0
}

const test = testWith(it.live)

test("when it is started again, then its data are there", function* () {
  const dataDir = yield* folder(0o755)
  for (const count of [1, 2]) assert.strictEqual(yield* visit(dataDir), count)
})

test("when the folder above is closed to others and then open, then it runs with its data in both", function* () {
  const dataDir = yield* used(0o700)
  for (const [count, mode] of [0o700, 0o755, 0o700].entries()) {
    yield* Effect.promise(() => fs.chmod(path.dirname(dataDir), mode))
    assert.strictEqual(yield* visit(dataDir), count + 1)
  }
})

test("when its folder is very deep, then the path of its socket is short, and the socket goes with it", function* () {
  const dataDir = path.join(yield* folder(0o755), "x".repeat(100), "y".repeat(100))
  assert.strictEqual(yield* visit(dataDir), 1)
  const { path: socket } = yield* Effect.scoped(embeddedPostgres({ dataDir }))
  assert.isBelow(Buffer.byteLength(socket), 104)
  assert.isFalse(existsSync(path.dirname(socket)))
})

test("when a second one starts on the folder, then it is refused and the first goes on", function* () {
  const dataDir = yield* used(0o755)
  const { exited: _, ...first } = yield* embeddedPostgres({ dataDir })
  const refusal = Effect.map(
    Effect.flip(Effect.scoped(embeddedPostgres({ dataDir }))),
    ({ message }) => message
  )
  assert.strictEqual(
    yield* refusal,
    `${dataDir} is in use by another tollgate: stop that one, or set DATA_DIR`
  )
  yield* writeRuntime(dataDir, { pid: process.pid, database: first })
  assert.strictEqual(
    yield* refusal,
    `${dataDir} is in use by another tollgate (pid ${process.pid}): stop that one, or set DATA_DIR`
  )
  assert.strictEqual(yield* visits.pipe(Effect.provide(layerPostgres({ url: first, maxConnections: 1 }))), 1)
})

test("when two first starts come at once, then one database is made and one of them runs", function* () {
  const dataDir = yield* folder(0o755)
  const start = Effect.exit(embeddedPostgres({ dataDir }))
  const exits = yield* Effect.all([start, start], { concurrency: 2 })
  assert.strictEqual(exits.filter(Exit.isSuccess).length, 1)
  const left = yield* Effect.promise(() => fs.readdir(dataDir))
  assert.deepStrictEqual(left.toSorted(), ["libraries", "postgres"])
})

test("when a first start was cut short, then the next one removes its rest", function* () {
  const dataDir = yield* folder(0o755)
  const draft = path.join(dataDir, "postgres-draft-4194305-abc")
  yield* Effect.promise(() => fs.mkdir(draft, { recursive: true, mode: 0o755 }))
  yield* Effect.promise(() => fs.chmod(dataDir, 0o711))
  assert.strictEqual(yield* visit(dataDir), 1)
  assert.isFalse(existsSync(draft))
})

test("when a lock names a process number that now belongs to another program, then it starts", function* () {
  const dataDir = yield* used(0o755)
  yield* visit(dataDir)
  const data = path.join(dataDir, "postgres")
  // What a reboot leaves: the number of a process of the same user that is no Postgres.
  const owner = root ? { uid: statSync(data).uid } : {}
  const { pid } = yield* Effect.acquireRelease(
    Effect.sync(() => spawn("sleep", ["600"], owner)),
    (sleep) => Effect.sync(() => sleep.kill("SIGKILL"))
  )
  const lines = [pid, data, 1_700_000_000, 5432, data, "", "  1  1", "ready"].join("\n")
  for (const name of ["postmaster.pid", ".s.PGSQL.5432.lock"])
    yield* Effect.promise(() => fs.writeFile(path.join(data, name), lines))
  assert.strictEqual(yield* visit(dataDir), 2)
})

test("when its parent is killed, then it ends, and the next start has the data at once", function* () {
  for (const mode of [0o755, 0o700]) {
    const dataDir = yield* used(mode)
    assert.strictEqual(yield* visit(dataDir), 1)
    const { child } = yield* parent(dataDir)
    child.kill("SIGKILL")
    assert.strictEqual(yield* visit(dataDir), 2)
  }
})

asRoot("when root has copied the data, or they are another user's, then they are used, as their owner", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const data = path.join(dataDir, "postgres")
    assert.strictEqual(yield* visit(dataDir), 1)
    const own = statSync(data).uid
    assert.notInclude([0, nobody], own)
    for (const [count, before, after] of [
      [2, 0, own],
      [3, daemon, daemon]
    ] as const) {
      spawnSync("chown", ["-R", `${before}:${before}`, data])
      assert.strictEqual(yield* visit(dataDir), count)
      assert.strictEqual(statSync(data).uid, after)
    }
  })
)

for (const [mode, way] of [
  [0o755, "as a user of its own"],
  [0o700, "below a folder that is closed"]
] as const) {
  asOthers(`when root runs the database ${way}, then no other user reaches socket, data or notes`, () =>
    Effect.gen(function* () {
      const dataDir = yield* folder(mode)
      const { path: socket } = yield* embeddedPostgres({ dataDir })
      yield* Effect.promise(() => fs.chmod(path.dirname(dataDir), 0o755))
      for (const uid of [daemon, nobody]) {
        assert.isFalse(may(uid, `cd '${path.dirname(socket)}'`))
        assert.isFalse(may(uid, `cd '${path.join(dataDir, "postgres")}'`))
        assert.isFalse(may(uid, `ls '${dataDir}'`))
      }
    })
  )
}

asOthers("when a user without privileges runs the database, then no other user reaches it", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    yield* Effect.promise(() => fs.mkdir(dataDir, { mode: 0o711 }))
    yield* Effect.promise(() => fs.chown(dataDir, daemon, daemon))
    const { socket } = yield* parent(dataDir, as(daemon))
    assert.strictEqual(statSync(path.join(dataDir, "postgres")).uid, daemon)
    assert.isTrue(may(daemon, `cd '${path.dirname(socket)}'`))
    assert.isFalse(may(nobody, `cd '${path.dirname(socket)}'`))
  })
)

asOthers('when root makes the database, then no other process of "nobody" gets into what initdb writes', () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    yield* Effect.promise(() => fs.mkdir(dataDir, { mode: 0o755 }))
    // initdb itself runs as "nobody". The loop sees the draft folder, and tries to enter what lies in it.
    const line = `while sleep 0.02; do for draft in '${dataDir}'/postgres-draft-*; do
      [ -d "$draft" ] && echo seen
      cd "$draft/data" 2>/dev/null && echo entered
    done; done`
    const [command = "", ...args] = [...as(nobody), "sh", "-c", line]
    const intruder = yield* Effect.acquireRelease(
      Effect.sync(() => spawn(command, args, { stdio: ["ignore", "pipe", "ignore"] })),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
    const said: Array<string> = []
    intruder.stdout.setEncoding("utf8").on("data", (text: string) => said.push(text))
    assert.strictEqual(yield* visit(dataDir), 1)
    assert.deepStrictEqual([...new Set(said.join("").trim().split("\n"))], ["seen"])
  })
)

test("when the folder cannot be used, then the error says why", function* () {
  const dataDir = yield* folder(0o755)
  const failing = Effect.map(
    Effect.flip(Effect.scoped(embeddedPostgres({ dataDir }))),
    ({ message }) => message
  )
  yield* Effect.promise(() => fs.writeFile(dataDir, ""))
  assert.strictEqual(
    yield* failing,
    `${dataDir} cannot be used: give this user the right to write there, or set DATA_DIR (EEXIST)`
  )
})
