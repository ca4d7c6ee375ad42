/** Other users of the machine and the embedded database: neither its socket nor its files are theirs. */
import { spawn, spawnSync } from "node:child_process"
import { readFileSync, statSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Redacted, Tracer } from "effect"
import { embeddedPostgres } from "../../src/infra/embedded/EmbeddedPostgres.ts"
import { layerPostgres, type SocketAddress } from "../../src/infra/Postgres.ts"
import { isReachable, postgresBinaries } from "../../src/infra/embedded/PostgresBinaries.ts"
import {
  nobody,
  type PostgresUser,
  runPostgresProgram,
  startPostgres
} from "../../src/infra/embedded/PostgresProcess.ts"
import { folder, parent, visit, visits } from "../support/embedded.ts"

const root = process.getuid?.() === 0
/** To become another user needs root, and that user has to be able to read Node and this checkout. */
const others =
  root &&
  (await isReachable(path.dirname(process.execPath), "anyone")) &&
  (await isReachable(import.meta.dirname, "anyone"))
const asOthers = others ? it.live : it.live.skip

const daemon = 1
const as = (uid: number) => ["setpriv", `--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"]

/** Prints what the server answers to a client that gives no password: R0 lets it in, R10 asks for a password. */
const client = `
  const words = Buffer.from("user\\0tollgate\\0database\\0postgres\\0\\0")
  const head = Buffer.alloc(8)
  head.writeInt32BE(words.length + 8, 0)
  head.writeInt32BE(196608, 4)
  const socket = require("node:net").connect(process.argv.at(-1))
  socket.on("connect", () => socket.write(Buffer.concat([head, words])))
  socket.on("data", (reply) => {
    console.log(String.fromCharCode(reply[0]) + (reply[0] === 82 ? reply.readInt32BE(5) : ""))
    socket.destroy()
  })
  socket.on("error", (error) => console.log(error.code))`

const answerTo = (uid: number, socket: string): string => {
  const [command = "", ...args] = [...as(uid), process.execPath, "-e", client, "--", socket]
  return spawnSync(command, args, { encoding: "utf8" }).stdout.trim()
}

/** The exit code of a shell line. */
const codeOf = (uid: number, line: string): number | null => {
  const [command = "", ...args] = [...as(uid), "sh", "-c", line]
  return spawnSync(command, args, { stdio: "ignore" }).status
}

const canEnter = (uid: number, name: string): boolean => codeOf(uid, `cd '${name}'`) === 0

const openFolderOf = (socket: string) => Effect.promise(() => fs.chmod(path.dirname(socket), 0o711))

const trusts = "R0"
const asks = "R10"

/** Can a client with this address do anything at all? */
const isLetIn = (url: SocketAddress) =>
  visits.pipe(
    Effect.provide(layerPostgres({ url, maxConnections: 1 }), { local: true }),
    Effect.match({ onFailure: () => false, onSuccess: () => true })
  )

const passwordIn = (dataDir: string): string =>
  readFileSync(path.join(dataDir, "postgres-password"), "utf8").trim()
const rulesIn = (dataDir: string): string => readFileSync(path.join(dataDir, "postgres/pg_hba.conf"), "utf8")

it.live("when a client has no password or a wrong one, then it is refused", () =>
  Effect.gen(function* () {
    const { exited: _, password, ...address } = yield* embeddedPostgres({ dataDir: yield* folder(0o755) })
    assert.isTrue(yield* isLetIn({ ...address, ...(password === undefined ? {} : { password }) }))
    assert.isFalse(yield* isLetIn(address))
    assert.isFalse(yield* isLetIn({ ...address, password: Redacted.make("a".repeat(43)) }))
  })
)

for (const [mode, way] of [
  [0o755, "as a user of its own"],
  [0o700, "in a namespace"]
] as const)
  asOthers(
    `when root runs the database ${way}, then other users find the folder closed, and need a password`,
    () =>
      Effect.gen(function* () {
        const dataDir = yield* folder(mode)
        const { path: socket } = yield* embeddedPostgres({ dataDir })
        for (const uid of [daemon, nobody.uid]) {
          assert.strictEqual(answerTo(uid, socket), "EACCES")
          assert.isFalse(canEnter(uid, path.join(dataDir, "postgres")))
          assert.notStrictEqual(codeOf(uid, `cat '${dataDir}/postgres-password'`), 0)
        }
        yield* openFolderOf(socket)
        for (const uid of [daemon, nobody.uid]) assert.strictEqual(answerTo(uid, socket), asks)
      })
  )

asOthers("when a user without privileges runs the database, then other users need a password", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    yield* Effect.promise(() => fs.mkdir(dataDir, { mode: 0o711 }))
    yield* Effect.promise(() => fs.chown(dataDir, daemon, daemon))
    const { socket } = yield* parent(dataDir, as(daemon))
    assert.strictEqual(statSync(path.join(dataDir, "postgres")).uid, daemon)
    assert.strictEqual(answerTo(nobody.uid, socket), "EACCES")
    assert.notStrictEqual(codeOf(nobody.uid, `cat '${dataDir}/postgres-password'`), 0)
    yield* openFolderOf(socket)
    for (const uid of [0, daemon, nobody.uid]) assert.strictEqual(answerTo(uid, socket), asks)
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
      cat "$draft/password" 2>/dev/null
    done; done`
    const [command = "", ...args] = [...as(nobody.uid), "sh", "-c", line]
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

/** A folder as release 1.0.0 made it: anybody who reaches the socket is let in, and root's belongs to "nobody". */
const makeOldFolder = Effect.fnUntraced(function* (dataDir: string) {
  const user: PostgresUser = root ? nobody : { kind: "self" }
  const native = yield* postgresBinaries({ reader: root ? "anyone" : undefined })
  const data = path.join(dataDir, "postgres")
  yield* Effect.promise(async () => {
    await fs.mkdir(data, { recursive: true, mode: 0o700 })
    if (root) await fs.chmod(dataDir, 0o711)
    if (root) await fs.chown(data, nobody.uid, nobody.gid)
  })
  yield* runPostgresProgram({
    user,
    program: path.join(native, "bin/initdb"),
    folder: data,
    args: ["-D", data, "-U", "tollgate", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"]
  })
  assert.match(rulesIn(dataDir), /^local\s+all\s+all\s+trust$/m)
  return { user, native, data }
})

/** Runs it as 1.0.0 did, but with a socket that everybody can reach. */
const startOld = Effect.fnUntraced(function* (
  dataDir: string,
  old: { readonly user: PostgresUser; readonly native: string; readonly data: string }
) {
  const socketDir = path.join(dataDir, "old")
  yield* Effect.promise(async () => {
    await fs.mkdir(socketDir)
    await fs.chmod(socketDir, 0o777)
  })
  const server = yield* Effect.acquireRelease(
    startPostgres({ ...old, dataDir: old.data, args: ["-k", socketDir, "-c", "listen_addresses="] }),
    (server) => server.stop
  )
  return { server, socket: path.join(socketDir, ".s.PGSQL.5432") }
})

it.live(
  "when the folder is one of release 1.0.0, then it is taken over with its data, and needs a password",
  () =>
    Effect.gen(function* () {
      const dataDir = yield* folder(0o755)
      const old = yield* makeOldFolder(dataDir)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { socket } = yield* startOld(dataDir, old)
          if (others) assert.strictEqual(answerTo(daemon, socket), trusts)
          assert.isTrue(yield* isLetIn({ path: socket, database: "postgres", username: "tollgate" }))
        })
      )
      const { exited: _, password, ...address } = yield* embeddedPostgres({ dataDir })
      assert.isFalse(yield* isLetIn(address))
      assert.notInclude(rulesIn(dataDir), "trust")
      if (root) assert.notStrictEqual(statSync(old.data).uid, nobody.uid)
      yield* openFolderOf(address.path)
      if (others) assert.strictEqual(answerTo(daemon, address.path), asks)
      assert.strictEqual(
        yield* visits.pipe(
          Effect.provide(layerPostgres({ url: { ...address, ...(password && { password }) } }))
        ),
        2
      )
    })
)

it.live("when a gateway of release 1.0.0 still runs on the folder, then it keeps it until it ends", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const old = yield* makeOldFolder(dataDir)
    const owner = statSync(old.data).uid
    const { server } = yield* startOld(dataDir, old)
    assert.strictEqual(
      (yield* Effect.flip(Effect.scoped(embeddedPostgres({ dataDir }))))._tag,
      "DataDirInUse"
    )
    assert.strictEqual(statSync(old.data).uid, owner)
    const next = yield* Effect.forkScoped(visit(dataDir))
    yield* server.stop
    assert.strictEqual(yield* Fiber.join(next), 1)
  })
)

it.live("when the password is lost, or belongs to another folder, then the next start sets it", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const file = path.join(dataDir, "postgres-password")
    assert.strictEqual(yield* visit(dataDir), 1)
    const first = passwordIn(dataDir)
    assert.strictEqual(yield* visit(dataDir), 2)
    assert.strictEqual(passwordIn(dataDir), first)
    yield* Effect.promise(() => fs.rm(file))
    assert.strictEqual(yield* visit(dataDir), 3)
    yield* Effect.promise(() => fs.writeFile(file, `${"b".repeat(43)}\n`, { mode: 0o600 }))
    assert.strictEqual(yield* visit(dataDir), 4)
    assert.strictEqual(passwordIn(dataDir), "b".repeat(43))
    yield* Effect.promise(() => fs.writeFile(file, ""))
    assert.strictEqual(yield* visit(dataDir), 5)
  })
)

it.live("when others can read the password file, then there is a new password", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    const file = path.join(dataDir, "postgres-password")
    yield* visit(dataDir)
    const read = passwordIn(dataDir)
    yield* Effect.promise(() => fs.chmod(file, 0o640))
    const { exited: _, ...address } = yield* embeddedPostgres({ dataDir })
    assert.notStrictEqual(passwordIn(dataDir), read)
    assert.strictEqual(statSync(file).mode & 0o777, 0o600)
    assert.isTrue(yield* isLetIn(address))
    assert.isFalse(yield* isLetIn({ ...address, password: Redacted.make(read) }))
  })
)

it.live("when the password is set, then no span has it among its attributes", () =>
  Effect.gen(function* () {
    const dataDir = yield* folder(0o755)
    yield* visit(dataDir)
    yield* Effect.promise(() => fs.rm(path.join(dataDir, "postgres-password")))
    const spans: Array<Tracer.NativeSpan> = []
    const tracer = Tracer.make({
      span: (options) => {
        const span = new Tracer.NativeSpan(options)
        spans.push(span)
        return span
      }
    })
    yield* Effect.scoped(embeddedPostgres({ dataDir })).pipe(Effect.withTracer(tracer))
    const said = JSON.stringify(spans.map(({ attributes, name }) => [name, ...attributes]))
    assert.include(said, "ALTER ROLE")
    assert.notInclude(said, passwordIn(dataDir))
  })
)
