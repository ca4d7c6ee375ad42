/**
 * A real Postgres cluster for tests: fast (nothing is synced to disk), on a free port of 127.0.0.1 and on a socket,
 * thrown away with its scope.
 */
import { execFile } from "node:child_process"
import { chown, mkdir, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { promisify } from "node:util"
import { Effect, Redacted, Schedule } from "effect"
import type { Scope } from "effect/Scope"
import { postgresBinaries } from "../../../src/infra/embedded/PostgresBinaries.ts"
import type { SocketAddress } from "../../../src/infra/Postgres.ts"
import {
  type PostgresFailed,
  type PostgresProcess,
  runInitdb,
  startPostgres
} from "../../../src/infra/embedded/PostgresProcess.ts"
import { freePort, signalTree } from "./processes.ts"

export interface PostgresCluster {
  /** the folder with its data */
  readonly data: string
  readonly port: number
  readonly socketPath: string
  /** what a child process takes as DATABASE_URL */
  readonly url: (database: string) => Redacted.Redacted
  readonly socket: (database: string) => SocketAddress
  /** clean stop; clients see their connections closed */
  readonly stop: Effect.Effect<void>
  /** SIGKILL to the server and all its processes */
  readonly kill: Effect.Effect<void>
  /** SIGSTOP: connections stay open, and nothing answers */
  readonly pause: Effect.Effect<void>
  readonly resume: Effect.Effect<void>
  /** starts it again on the same port, after `stop` or `kill` */
  readonly start: Effect.Effect<void, PostgresFailed>
}

export const testUser = "tollgate"

/** Whom root runs it as, because Postgres refuses to run as root. */
export const nobody = { uid: 65_534, gid: 65_534 }
const root = process.getuid?.() === 0
// This checkout may be below a folder that only root may enter.
const user = root ? { ...nobody, entersAll: true } : undefined

const folder = Effect.acquireRelease(
  Effect.promise(async () => {
    // Short: a socket's path may have 107 bytes.
    const base = await mkdtemp(path.join(tmpdir().length > 60 ? "/tmp" : tmpdir(), "tgp-"))
    const data = path.join(base, "data")
    await mkdir(data, { mode: 0o700 })
    if (root) {
      await chown(data, nobody.uid, nobody.gid)
      await chown(base, nobody.uid, nobody.gid)
    }
    return { base, data }
  }),
  ({ base }) => Effect.promise(() => rm(base, { recursive: true, force: true, maxRetries: 5 }))
)

const switches = {
  fsync: "off",
  synchronous_commit: "off",
  full_page_writes: "off",
  // An autovacuum worker in the template would make CREATE DATABASE fail now and then.
  autovacuum: "off",
  max_connections: "200",
  shared_buffers: "32MB",
  listen_addresses: "127.0.0.1"
}

/** The switches that make it durable, for benchmarks: what a commit costs is then what it costs in production. */
export const durable = { fsync: "on", synchronous_commit: "on", full_page_writes: "on", autovacuum: "on" }

/** Copies the data of a cluster that is stopped, with their owner: a tenth of the time that `initdb` takes. */
export const copyData = (from: string, to: string) =>
  Effect.promise(() => promisify(execFile)("cp", ["-a", `${from}/.`, to]))

export const makePostgresClusterWith = Effect.fnUntraced(function* (
  overrides: Readonly<Record<string, string>>,
  /** a folder with another Postgres' `bin`, or data to begin with */
  { from, installed }: { readonly from?: string; readonly installed?: string } = {}
): Effect.fn.Return<PostgresCluster, unknown, Scope> {
  const { base, data } = yield* folder
  const binaries =
    installed === undefined ? yield* postgresBinaries(path.join(base, "libraries")) : { native: installed }
  if (from === undefined) {
    yield* runInitdb({
      user,
      binaries,
      folder: data,
      args: ["-D", data, "-U", testUser, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    })
  } else yield* copyData(from, data)
  const port = yield* freePort
  let running: PostgresProcess | undefined
  const start = Effect.suspend(() =>
    startPostgres({
      user,
      binaries,
      folder: data,
      args: [
        "-k",
        base,
        "-p",
        String(port),
        ...Object.entries({ ...switches, ...overrides }).flatMap(([key, value]) => ["-c", `${key}=${value}`])
      ]
    })
  ).pipe(
    // The processes of a killed server need a moment to leave.
    Effect.retry({ schedule: Schedule.spaced("50 millis"), times: 60, while: (e) => e.reason === "in-use" }),
    Effect.tap((server) =>
      Effect.sync(() => {
        running = server
      })
    ),
    Effect.asVoid
  )
  const whenRunning = (act: (server: PostgresProcess) => Effect.Effect<void>) =>
    Effect.suspend(() => (running === undefined ? Effect.void : act(running)))
  const resume = whenRunning((server) => signalTree(server.pid, "SIGCONT"))
  const kill = whenRunning((server) => Effect.andThen(signalTree(server.pid, "SIGKILL"), server.exited))
  yield* Effect.acquireRelease(start, () => Effect.andThen(resume, kill))
  return {
    data,
    port,
    socketPath: path.join(base, `.s.PGSQL.${port}`),
    url: (database) => Redacted.make(`postgres://${testUser}@127.0.0.1:${port}/${database}`),
    socket: (database) => ({ path: path.join(base, `.s.PGSQL.${port}`), database, username: testUser }),
    stop: whenRunning((server) => server.stop),
    kill,
    pause: whenRunning((server) => signalTree(server.pid, "SIGSTOP")),
    resume,
    start
  }
})

export const makePostgresCluster: Effect.Effect<PostgresCluster, unknown, Scope> = makePostgresClusterWith({})
