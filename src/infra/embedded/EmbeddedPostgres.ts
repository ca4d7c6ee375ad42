/**
 * The database of a gateway nobody has configured: a real Postgres, kept in `DATA_DIR/postgres` and run by this
 * process for as long as its scope is open.
 *
 * *Details* Commits are durable (fsync stays on). The socket lives in a private folder with a short path, because a
 * socket's path may have 107 bytes and DATA_DIR may be deep. `initdb` works in a draft folder that gets its name at
 * the end, so that a start that was cut short leaves nothing half made. Postgres's own lock on its folder decides
 * who may use it; a lock left by a crash is told apart from a live one by what its process is doing. A connection
 * needs the password (see `PostgresAccess`), whoever asks for it.
 *
 * *Gotchas* Nothing else may start Postgres on the folder; a second gateway gets `DataDirInUse`.
 */
import { randomBytes } from "node:crypto"
import { existsSync, readFileSync, readlinkSync } from "node:fs"
import * as fs from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Data, Effect, Redacted, Schedule } from "effect"
import type { Scope } from "effect/Scope"
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

/** Another gateway keeps its data there right now. */
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
  /** completes when the server has ended, whoever ended it */
  readonly exited: Effect.Effect<void>
}

const username = "tollgate"
const database = "postgres"
const socketPrefix = "tollgate-"

const settings = {
  listen_addresses: "",
  max_connections: "60",
  shared_buffers: "32MB",
  // One small database: the helpers that save time on big ones only cost memory here.
  max_worker_processes: "2",
  max_parallel_workers: "0",
  io_workers: "1",
  password_encryption: "scram-sha-256"
}

const readers = { self: undefined, dropped: "everybody", namespace: "powerless-root" } as const

/** Root may not run Postgres: it needs somebody else who can reach the folder, or a namespace. */
const chooseUser = (folder: string): Effect.Effect<PostgresUser, DataDirUnusable> =>
  Effect.gen(function* () {
    if (process.getuid?.() !== 0) return { kind: "self" }
    const reachableBy = (reader: Reader) =>
      Effect.tryPromise({
        try: () => isReachable(folder, reader),
        catch: (cause) => new DataDirUnusable({ detail: `${folder} cannot be read`, cause })
      })
    if (yield* reachableBy("everybody")) return unshared
    if ((yield* reachableBy("powerless-root")) && hasNamespaces()) return { kind: "namespace" }
    return yield* new DataDirUnusable({
      detail: `Postgres does not run as root, and nobody else may enter ${folder}: set DATA_DIR to a folder like /var/lib/tollgate, or start as another user`
    })
  })

/** Whose files Postgres works on; undefined when there is nothing to hand over. */
const ownerFor = (user: PostgresUser) =>
  user.kind === "self" ? undefined : user.kind === "dropped" ? user : { uid: 0, gid: 0 }

const isOwned = async (folder: string, user: PostgresUser): Promise<boolean> => {
  const owner = ownerFor(user)
  return owner === undefined || (await fs.lstat(folder)).uid === owner.uid
}

/** Gives the folder to whoever runs Postgres now; root may have used another way last time. */
const hand = async (folder: string, user: PostgresUser): Promise<void> => {
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
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined
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
 * Is the process that left the lock a Postgres on this folder? Process numbers come round again: after a reboot the
 * number may be a browser's, and Postgres itself would refuse to start until it ends. Unknown counts as yes.
 */
const holds = (pid: number, data: string): boolean => {
  if (process.platform !== "linux") return isAlive(pid)
  const name = read(`/proc/${pid}/comm`)
  if (name === undefined) return false
  if (name.trim() !== "postgres") return false
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === data
  } catch {
    return true // not ours to look at, so not ours to judge
  }
}

/** Takes away the lock of a process that is no Postgres (any more). */
const clearStale = async (data: string): Promise<void> => {
  const pid = readLock(data)
  if (pid === undefined || holds(pid, data)) return
  if (read(`/proc/${pid}/comm`) !== undefined) await fs.rm(path.join(data, "postmaster.pid"), { force: true })
}

/** A private folder whose path leaves room for the name of the socket. */
const socketFolder = (user: PostgresUser): Effect.Effect<string, DataDirUnusable, Scope> =>
  Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        const base = tmpdir().length > 60 ? "/tmp" : tmpdir()
        const folder = await fs.mkdtemp(path.join(base, socketPrefix))
        await hand(folder, user)
        return folder
      },
      catch: (cause) => new DataDirUnusable({ detail: "no folder for the database socket", cause })
    }),
    (folder) =>
      Effect.tryPromise(() => fs.rm(folder, { recursive: true, force: true })).pipe(
        Effect.catch((cause) => Effect.logWarning("socket folder not removed", cause))
      )
  )

/** Notes where the socket is, and takes away the folder of a gateway that was killed and could not. */
const rememberFolder = async (home: string, folder: string): Promise<void> => {
  const note = path.join(home, "socket-folder")
  const former = read(note)?.trim() ?? ""
  if (former !== folder && path.basename(former).startsWith(socketPrefix))
    await fs.rm(former, { recursive: true, force: true })
  await fs.writeFile(note, `${folder}\n`, { mode: 0o600 })
}

/**
 * Runs initdb in a draft folder, and gives the result its name. Nobody but root and the group of `user` gets through
 * the draft folder.
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
  const maker = initdbUser(user)
  const io = <A>(act: () => Promise<A>) =>
    Effect.tryPromise({
      try: act,
      catch: (cause) => new DataDirUnusable({ detail: `${home} cannot be written to`, cause })
    })
  yield* io(async () => {
    for (const name of await fs.readdir(home)) {
      // A draft whose maker is gone: somebody pulled the plug on a first start.
      const maker = /^postgres-draft-(\d+)-/.exec(name)?.[1]
      if (maker !== undefined && read(`/proc/${maker}/comm`) === undefined)
        await fs.rm(path.join(home, name), { recursive: true, force: true })
    }
    await fs.mkdir(draft, { mode: 0o700 })
    await fs.mkdir(made, { mode: 0o700 })
    await fs.writeFile(passwordFile, Redacted.value(password), { mode: 0o600, flag: "wx" })
    await hand(made, maker)
    await hand(passwordFile, maker)
    if (user.kind === "dropped") {
      await fs.chown(draft, 0, user.gid)
      await fs.chmod(draft, 0o710)
    }
  })
  yield* runPostgresProgram({
    user: maker,
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
    await hand(made, user)
    await writeRules(made, password)
    try {
      await fs.rename(made, data)
    } catch (cause) {
      // Two first starts at once: the faster one's is as good.
      if (!existsSync(path.join(data, "PG_VERSION"))) throw cause
    } finally {
      await fs.rm(draft, { recursive: true, force: true })
    }
    const folder = await fs.open(home)
    await folder.sync().finally(() => folder.close())
  })
})

/** Makes DATA_DIR if need be, and starts its Postgres; stops it when the scope closes. */
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
      // Root hands Postgres to somebody else, who has to get through here.
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
    /** False when the server of another gateway works on the folder as another user, who has to end first. */
    const takeFolder = io(async () => {
      const holder = readLock(data)
      if (holder !== undefined && holds(holder, data)) return isOwned(data, user)
      await clearStale(data)
      await hand(data, user)
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
          // The server of a gateway that was killed a moment ago is still shutting down.
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
      ).pipe(Effect.tap(() => io(() => rememberFolder(home, socketDir))))
    const protect = Effect.gen(function* () {
      const rules = path.join(socketDir, "pg_hba.conf")
      yield* io(() => fs.writeFile(rules, setupRules, { mode: 0o600, flag: "wx" }))
      yield* io(() => hand(rules, user))
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
