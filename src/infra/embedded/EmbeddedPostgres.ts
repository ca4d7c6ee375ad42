/**
 * The embedded database: a real Postgres in `DATA_DIR/postgres`, run by this process while its scope is open.
 *
 * *Details* Commits are durable (fsync stays on). The socket is in a private folder with a short path, because the path of a
 * socket has at most 107 bytes and DATA_DIR may be deep. `initdb` works in a draft folder that is renamed at the end, so
 * that an interrupted start leaves nothing half made. The lock of Postgres decides which process may use the folder. A lock
 * that was left by a crash is recognised by its process. Every connection needs the password (`PostgresAccess.ts`).
 *
 * *Gotchas* No other program may start Postgres on the folder. A second gateway gets `DataDirInUse`.
 */
import { randomBytes } from "node:crypto"
import { existsSync, readFileSync, readlinkSync } from "node:fs"
import * as fs from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Data, Effect, Redacted, Schedule } from "effect"
import type { Scope } from "effect/Scope"
import { codeOf } from "../errorCode.ts"
import type { SocketAddress } from "../Postgres.ts"
import {
  databasePassword,
  hasRules,
  rulesFile,
  setPassword,
  setupRules,
  writeRules
} from "./PostgresAccess.ts"
import {
  isReachable,
  type PostgresBinariesMissing,
  postgresBinaries,
  type Reader
} from "./PostgresBinaries.ts"
import {
  hasNamespaces,
  initdbUser,
  PostgresFailed,
  type PostgresUser,
  runPostgresProgram,
  startPostgres,
  unshared
} from "./PostgresProcess.ts"
import { isAlive } from "./RuntimeFile.ts"

/** Another gateway uses the folder. */
export class DataDirInUse extends Data.TaggedError("DataDirInUse")<{
  readonly dataDir: string
  readonly pid: number | undefined
}> {
  override get message(): string {
    const by = this.pid === undefined ? "" : ` (Postgres runs as process ${this.pid})`
    return `${this.dataDir} is in use by another tollgate${by}: stop that one, or set DATA_DIR`
  }
}

/** The folder cannot be used; `detail` is for the terminal. */
export class DataDirUnusable extends Data.TaggedError("DataDirUnusable")<{
  readonly detail: string
  readonly cause?: unknown
}> {
  override get message(): string {
    return this.detail
  }
}

export type EmbeddedPostgresError = DataDirInUse | DataDirUnusable | PostgresBinariesMissing | PostgresFailed

export interface EmbeddedPostgres extends SocketAddress {
  /** completes when the server has ended, for any reason */
  readonly exited: Effect.Effect<void>
}

const username = "tollgate"
const database = "postgres"
const socketPrefix = "tollgate-"

const settings = {
  listen_addresses: "",
  max_connections: "60",
  shared_buffers: "32MB",
  // Fewer helper processes: for one small database they only cost memory.
  max_worker_processes: "2",
  max_parallel_workers: "0",
  io_workers: "1",
  password_encryption: "scram-sha-256"
}

const readers = { self: undefined, dropped: "anyone", namespace: "powerless-root" } as const

/** Postgres refuses to run as root. Root runs it as another user who can reach the folder, or in a namespace. */
const chooseUser = (folder: string): Effect.Effect<PostgresUser, DataDirUnusable> =>
  Effect.gen(function* () {
    if (process.getuid?.() !== 0) return { kind: "self" }
    const reachableBy = (reader: Reader) =>
      Effect.tryPromise({
        try: () => isReachable(folder, reader),
        catch: (cause) => new DataDirUnusable({ detail: `${folder} cannot be read`, cause })
      })
    if (yield* reachableBy("anyone")) return unshared
    if ((yield* reachableBy("powerless-root")) && hasNamespaces()) return { kind: "namespace" }
    return yield* new DataDirUnusable({
      detail: `Postgres does not run as root, and other users may not enter ${folder}: set DATA_DIR to a folder like /var/lib/tollgate, or start as another user`
    })
  })

/** The owner of the files of Postgres; undefined when no owner must change. */
const ownerFor = (user: PostgresUser) =>
  user.kind === "self" ? undefined : user.kind === "dropped" ? user : { uid: 0, gid: 0 }

const isOwned = async (folder: string, user: PostgresUser): Promise<boolean> => {
  const owner = ownerFor(user)
  return owner === undefined || (await fs.lstat(folder)).uid === owner.uid
}

/** Gives the folder to the user that runs Postgres now. Root may have used another user before. */
const changeOwner = async (folder: string, user: PostgresUser): Promise<void> => {
  const owner = ownerFor(user)
  if (owner === undefined || (await isOwned(folder, user))) return
  const { gid, uid } = owner
  const inside = (await fs.lstat(folder)).isDirectory() ? await fs.readdir(folder, { recursive: true }) : []
  for (const name of inside) await fs.lchown(path.join(folder, name), uid, gid)
  await fs.lchown(folder, uid, gid)
}

const read = (file: string): string | undefined => {
  try {
    return readFileSync(file, "utf8")
  } catch (cause) {
    const code = codeOf(cause)
    if (code === "ENOENT" || code === "ESRCH" || code === "ENOTDIR") return undefined
    throw cause
  }
}

/** The first line of postmaster.pid is the number of the process that holds the folder. */
const readLock = (data: string): number | undefined => {
  const [pid = ""] = (read(path.join(data, "postmaster.pid")) ?? "").split("\n")
  return /^\d+$/.test(pid) ? Number(pid) : undefined
}

/**
 * Whether the process of the lock is a Postgres on this folder. Process ids are reused: after a reboot the id may belong to a
 * browser, and Postgres would refuse to start until it ends. When it is unknown, the answer is yes.
 */
const isHolder = (pid: number, data: string): boolean => {
  if (process.platform !== "linux") return isAlive(pid)
  const name = read(`/proc/${pid}/comm`)
  if (name === undefined) return false
  if (name.trim() !== "postgres") return false
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === data
  } catch {
    return true // we may not read it, so assume that it holds the folder
  }
}

/** Removes the lock of a process that is not a Postgres on this folder. */
const clearStale = async (data: string): Promise<void> => {
  const pid = readLock(data)
  if (pid === undefined || isHolder(pid, data)) return
  if (read(`/proc/${pid}/comm`) !== undefined) await fs.rm(path.join(data, "postmaster.pid"), { force: true })
}

/** Makes a private folder with a path short enough for a socket. */
const socketFolder = (user: PostgresUser): Effect.Effect<string, DataDirUnusable, Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        const base = tmpdir().length > 60 ? "/tmp" : tmpdir()
        const folder = await fs.mkdtemp(path.join(base, socketPrefix))
        await changeOwner(folder, user)
        return folder
      },
      catch: (cause) => new DataDirUnusable({ detail: "no folder for the database socket", cause })
    }),
    (folder) =>
      Effect.tryPromise(() => fs.rm(folder, { recursive: true, force: true })).pipe(
        Effect.catch((cause) => Effect.logWarning("socket folder not removed", cause))
      )
  )

/** Stores the path of the socket folder, and removes the folder that a killed gateway left. */
const recordFolder = async (home: string, folder: string): Promise<void> => {
  const note = path.join(home, "socket-folder")
  const former = read(note)?.trim() ?? ""
  if (former !== folder && path.basename(former).startsWith(socketPrefix))
    await fs.rm(former, { recursive: true, force: true })
  await fs.writeFile(note, `${folder}\n`, { mode: 0o600 })
}

/**
 * Runs initdb in a draft folder and renames the result. Only root and the group of `user` can enter the draft folder.
 */
const initialise = Effect.fnUntraced(function* (options: {
  readonly native: string
  readonly home: string
  readonly data: string
  readonly user: PostgresUser
  readonly password: Redacted.Redacted
}) {
  const { data, home, native, password, user } = options
  const draft = path.join(home, `postgres-draft-${process.pid}-${randomBytes(3).toString("hex")}`)
  const made = path.join(draft, "data")
  const passwordFile = path.join(draft, "password")
  const initdbOwner = initdbUser(user)
  const io = <A>(act: () => Promise<A>) =>
    Effect.tryPromise({
      try: act,
      catch: (cause) => new DataDirUnusable({ detail: `${home} cannot be written to`, cause })
    })
  yield* io(async () => {
    for (const name of await fs.readdir(home)) {
      // A draft whose process is gone: a first start was interrupted.
      const maker = /^postgres-draft-(\d+)-/.exec(name)?.[1]
      if (maker !== undefined && read(`/proc/${maker}/comm`) === undefined)
        await fs.rm(path.join(home, name), { recursive: true, force: true })
    }
    await fs.mkdir(draft, { mode: 0o700 })
    await fs.mkdir(made, { mode: 0o700 })
    await fs.writeFile(passwordFile, Redacted.value(password), { mode: 0o600, flag: "wx" })
    await changeOwner(made, initdbOwner)
    await changeOwner(passwordFile, initdbOwner)
    if (user.kind === "dropped") {
      await fs.chown(draft, 0, user.gid)
      await fs.chmod(draft, 0o710)
    }
  })
  yield* runPostgresProgram({
    user: initdbOwner,
    program: path.join(native, "bin/initdb"),
    folder: made,
    args: [
      "-D",
      made,
      "-U",
      username,
      "-A",
      "scram-sha-256",
      `--pwfile=${passwordFile}`,
      "-E",
      "UTF8",
      "--locale-provider=builtin",
      "--builtin-locale=C.UTF-8",
      "--locale=C",
      "--no-instructions"
    ]
  })
  yield* io(async () => {
    await changeOwner(made, user)
    await writeRules(made, password)
    try {
      await fs.rename(made, data)
    } catch (cause) {
      // Another first start at the same time was faster. Its database is used.
      if (!existsSync(path.join(data, "PG_VERSION"))) throw cause
    } finally {
      await fs.rm(draft, { recursive: true, force: true })
    }
    const folder = await fs.open(home)
    await folder.sync().finally(() => folder.close())
  })
})

/** Creates DATA_DIR when it is missing, and starts its Postgres. Stops it when the scope closes. */
export const embeddedPostgres = (options: {
  readonly dataDir: string
}): Effect.Effect<EmbeddedPostgres, EmbeddedPostgresError, Scope> =>
  Effect.gen(function* () {
    const io = <A>(act: () => Promise<A>) =>
      Effect.tryPromise({
        try: act,
        catch: (cause) => new DataDirUnusable({ detail: `${options.dataDir} cannot be used`, cause })
      })
    const home = yield* io(async () => {
      // Root runs Postgres as another user, who must be able to enter this folder.
      await fs.mkdir(options.dataDir, { recursive: true, mode: process.getuid?.() === 0 ? 0o711 : 0o700 })
      return fs.realpath(options.dataDir)
    })
    const data = path.join(home, "postgres")
    const user = yield* chooseUser(home)
    const native = yield* postgresBinaries({ reader: readers[user.kind] })
    const password = yield* io(() => databasePassword(home))
    if (!existsSync(path.join(data, "PG_VERSION"))) yield* initialise({ native, home, data, user, password })
    const socketDir = yield* socketFolder(user)
    const address = { path: path.join(socketDir, ".s.PGSQL.5432"), database, username }
    const holder = readLock(data)
    /** Returns false when another gateway's server uses the folder as another user; that server must end first. */
    const takeFolder = io(async () => {
      const holder = readLock(data)
      if (holder !== undefined && isHolder(holder, data)) return isOwned(data, user)
      await clearStale(data)
      await changeOwner(data, user)
      return true
    })
    const start = (rules: string) =>
      Effect.acquireRelease(
        Effect.flatMap(takeFolder, (taken) =>
          taken
            ? startPostgres({
                user,
                native,
                dataDir: data,
                args: [
                  "-k",
                  socketDir,
                  ...Object.entries({ ...settings, hba_file: rules }).flatMap(([key, value]) => [
                    "-c",
                    `${key}=${value}`
                  ])
                ]
              })
            : Effect.fail(new PostgresFailed({ reason: "in-use", program: "postgres", log: "" }))
        ).pipe(
          // The server of a gateway that was just killed may still be shutting down.
          Effect.retry({
            schedule: Schedule.spaced("100 millis"),
            times: 30,
            while: (error) => error._tag === "PostgresFailed" && error.reason === "in-use"
          }),
          Effect.mapError((error) =>
            error._tag === "PostgresFailed" && error.reason === "in-use"
              ? new DataDirInUse({ dataDir: options.dataDir, pid: readLock(data) ?? holder })
              : error
          )
        ),
        (server) => server.stop
      ).pipe(Effect.tap(() => io(() => recordFolder(home, socketDir))))
    const protect = Effect.gen(function* () {
      const rules = path.join(socketDir, "pg_hba.conf")
      yield* io(() => fs.writeFile(rules, setupRules, { mode: 0o600, flag: "wx" }))
      yield* io(() => changeOwner(rules, user))
      yield* start(rules)
      yield* Effect.mapError(
        setPassword(address, password),
        (cause) =>
          new DataDirUnusable({ detail: `the database in ${home} cannot be given a password`, cause })
      )
      yield* io(() => writeRules(data, password))
    }).pipe(Effect.scoped)
    if (!(yield* io(() => hasRules(data, password)))) yield* protect
    const server = yield* start(rulesFile(data))
    return { ...address, password, exited: server.exited }
  })
