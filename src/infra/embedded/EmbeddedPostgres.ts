/**
 * The embedded database: a real Postgres in `DATA_DIR/postgres`, run by this process while its scope is open. Commits are durable.
 *
 * *Details* Only the user of the server, and root, can enter the folder of the socket, so the server asks for no password.
 * `initdb` works in a draft folder that is renamed at the end, so that an interrupted start leaves nothing half made.
 *
 * Postgres refuses to run as root. Root runs it as the owner of the folder, or as a user that no other program has. When a folder
 * above is closed to that user, the server keeps one right of root: CAP_DAC_OVERRIDE, which ignores the permissions of files.
 */
import { randomBytes } from "node:crypto"
import { existsSync, statSync } from "node:fs"
import * as fs from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Effect, Option, Schedule, type Scope } from "effect"
import { codeOf } from "../errorCode.ts"
import type { SocketAddress } from "../Postgres.ts"
import { postgresBinaries } from "./PostgresBinaries.ts"
import {
  hasSetpriv,
  type PostgresBinaries,
  PostgresFailed,
  type PostgresUser,
  runInitdb,
  startPostgres,
  unusable
} from "./PostgresProcess.ts"
import { isAlive, readRuntime } from "./RuntimeFile.ts"

export interface EmbeddedPostgres extends SocketAddress {
  /** completes when the server has ended, for any reason */
  readonly exited: Effect.Effect<void>
}

const address = { database: "postgres", username: "tollgate" }
const socketName = ".s.PGSQL.5432"
/** A path of a socket has at most 107 bytes on Linux, 103 on macOS. */
const maxSocketPath = 100

const switches = Object.entries({
  listen_addresses: "",
  max_connections: "60",
  shared_buffers: "32MB",
  // Fewer helper processes: for one small database they only cost memory.
  max_worker_processes: "2",
  max_parallel_workers: "0",
  io_workers: "1"
}).flatMap(([key, value]) => ["-c", `${key}=${value}`])

const isRoot = process.getuid?.() === 0

/** No distribution assigns the numbers from 65,520 to 65,533, so no other program has this one. Services do run as "nobody". */
const unshared = { uid: 65_529, gid: 65_529 }
/** "nobody" on every Linux: `initdb` refuses a user without an account. */
const nobody = 65_534

/** Whether every user can enter the folder: it needs the search bit on it and on every folder above. */
const isOpen = async (folder: string): Promise<boolean> => {
  const above = path.dirname(folder)
  return ((await fs.stat(folder)).mode & 0o001) !== 0 && (above === folder || (await isOpen(above)))
}

/** Gives a folder, and all in it, to a user. */
const giveTo = async ({ gid, uid }: Pick<PostgresUser, "gid" | "uid">, folder: string): Promise<void> => {
  for (const name of await fs.readdir(folder, { recursive: true }))
    await fs.lchown(path.join(folder, name), uid, gid)
  await fs.lchown(folder, uid, gid)
}

/** Whom Postgres runs as; undefined: the user of this process. */
const userFor = async (data: string, home: string, native: string): Promise<PostgresUser | undefined> => {
  if (!isRoot) return undefined
  const owner = existsSync(data) ? await fs.stat(data) : unshared
  const entersAll = !((await isOpen(home)) && (await isOpen(native)))
  // A copy that root has made is root's.
  if (owner.uid === 0) await giveTo(unshared, data)
  const { gid, uid } = owner.uid === 0 ? unshared : owner
  return { uid, gid, entersAll }
}

/** undefined: there is no such file, or no such process */
const textOf = (file: string): Promise<string | undefined> =>
  fs.readFile(file, "utf8").catch((cause: unknown) => {
    if (["ENOENT", "ENOTDIR", "ESRCH"].includes(codeOf(cause) ?? "")) return undefined
    throw cause
  })

/**
 * Removes locks whose process number another program has: after a reboot it may be the user's browser, and Postgres would refuse to
 * start until that ends. A number that nobody has is no obstacle.
 */
const clearStaleLocks = async (data: string): Promise<void> => {
  const [pid = ""] = ((await textOf(path.join(data, "postmaster.pid"))) ?? "").split("\n")
  const program = /^\d+$/.test(pid) ? await textOf(`/proc/${pid}/comm`) : undefined
  if (program === undefined || program.trim() === "postgres") return
  for (const name of ["postmaster.pid", `${socketName}.lock`])
    await fs.rm(path.join(data, name), { force: true })
}

/** The folder of the socket: that of the data, or a private one when its path would be too long. */
const socketFolder = (data: string, user: PostgresUser | undefined) =>
  Buffer.byteLength(path.join(data, socketName)) <= maxSocketPath
    ? Effect.succeed(data)
    : Effect.acquireRelease(
        Effect.tryPromise({
          try: async () => {
            const folder = await fs.mkdtemp(path.join(tmpdir().length > 60 ? "/tmp" : tmpdir(), "tollgate-"))
            if (user !== undefined) await giveTo(user, folder)
            return folder
          },
          catch: unusable("no folder for the socket of the database")
        }),
        (folder) =>
          Effect.catch(
            Effect.tryPromise(() => fs.rm(folder, { recursive: true, force: true })),
            (cause) => Effect.logWarning("socket folder not removed", cause)
          )
      )

/** Runs initdb in a draft folder and renames the result. Only root and the group of `user` can enter the draft folder. */
const initialise = Effect.fnUntraced(function* (
  binaries: PostgresBinaries,
  user: PostgresUser | undefined,
  home: string,
  data: string
) {
  const io = <A>(act: () => Promise<A>) =>
    Effect.tryPromise({ try: act, catch: unusable(`${home} cannot be written to`) })
  const draft = path.join(home, `postgres-draft-${process.pid}-${randomBytes(3).toString("hex")}`)
  const made = path.join(draft, "data")
  const maker = user === undefined ? undefined : { ...user, uid: nobody }
  yield* io(async () => {
    for (const name of await fs.readdir(home)) {
      // A draft whose process is gone: a first start was interrupted.
      const [, pid] = /^postgres-draft-(\d+)-/.exec(name) ?? []
      if (pid !== undefined && !isAlive(Number(pid)))
        await fs.rm(path.join(home, name), { recursive: true, force: true })
    }
    await fs.mkdir(made, { recursive: true, mode: 0o700 })
    if (maker === undefined) return
    await giveTo(maker, made)
    await fs.chown(draft, 0, maker.gid)
    await fs.chmod(draft, 0o710)
  })
  const locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
  const args = [
    "-D",
    made,
    "-U",
    address.username,
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--no-instructions",
    ...locale
  ]
  yield* runInitdb({ user: maker, binaries, folder: made, args })
  yield* io(async () => {
    if (user !== undefined) await giveTo(user, made)
    await fs.rename(made, data).catch((cause: unknown) => {
      // Another first start at the same time was faster. Its database is used.
      if (!existsSync(path.join(data, "PG_VERSION"))) throw cause
    })
    await fs.rm(draft, { recursive: true, force: true })
  })
})

/** Names the process, once that has said what it is. */
const inUse = (dataDir: string): Effect.Effect<string> =>
  Effect.map(Effect.option(readRuntime(dataDir)), (read) => {
    const running = Option.getOrUndefined(Option.flatten(read))
    const whose = running === undefined ? "" : ` (pid ${running.pid})`
    return `${dataDir} is in use by another tollgate${whose}: stop that one, or set DATA_DIR`
  })

/** With `recursive` Node tries for ever where a file system has the parent and refuses the folder as missing, as /proc does. */
const makeFolder = async (folder: string, mode: number): Promise<void> => {
  if (isFolder(folder)) return
  await makeFolder(path.dirname(folder), mode)
  await fs.mkdir(folder, { mode }).catch((cause: unknown) => {
    // Another first start at the same time was faster.
    if (!isFolder(folder)) throw cause
  })
}

const isFolder = (name: string): boolean => statSync(name, { throwIfNoEntry: false })?.isDirectory() === true

/** Creates DATA_DIR when it is missing, and starts its Postgres. Stops it when the scope closes. */
export const embeddedPostgres = Effect.fnUntraced(function* ({
  dataDir
}: {
  readonly dataDir: string
}): Effect.fn.Return<EmbeddedPostgres, PostgresFailed, Scope.Scope> {
  const io = <A>(act: () => Promise<A>) =>
    Effect.tryPromise({
      try: act,
      catch: unusable(`${dataDir} cannot be used: give this user the right to write there, or set DATA_DIR`)
    })
  if (isRoot && !hasSetpriv()) {
    return yield* unusable(
      "Postgres does not run as root: install setpriv (util-linux), or start as another user"
    )()
  }
  const home = yield* io(async () => {
    // Root runs Postgres as another user, who must be able to enter this folder.
    await makeFolder(path.resolve(dataDir), isRoot ? 0o711 : 0o700)
    return fs.realpath(dataDir)
  })
  const data = path.join(home, "postgres")
  const binaries = yield* postgresBinaries(path.join(home, "libraries"))
  const user = yield* io(() => userFor(data, home, binaries.native))
  if (!existsSync(path.join(data, "PG_VERSION"))) yield* initialise(binaries, user, home, data)
  const socket = yield* socketFolder(data, user)
  const start = io(() => clearStaleLocks(data)).pipe(
    Effect.andThen(startPostgres({ user, binaries, folder: data, args: ["-k", socket, ...switches] })),
    // The server of a gateway that was just killed may still be shutting down.
    Effect.retry({
      schedule: Schedule.spaced("100 millis"),
      times: 30,
      while: ({ reason }) => reason === "in-use"
    }),
    Effect.catchIf(
      ({ reason }) => reason === "in-use",
      (cause) =>
        Effect.flatMap(inUse(dataDir), (detail) => new PostgresFailed({ reason: "in-use", detail, cause }))
    )
  )
  const { exited } = yield* Effect.acquireRelease(start, ({ stop }) => stop)
  return { ...address, path: path.join(socket, socketName), exited }
})
