/**
 * Replicas of the gateway as an operator runs them (`node build/start.js`, production settings), and keys for them. A trigger keeps
 * every admission with the store's own time of it.
 */
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schedule, type Scope } from "effect"
import { migrate } from "../../src/infra/Migrations.ts"
import { Registry } from "../../src/admin/Registry.ts"
import type { KeyChange } from "../../src/domain/attributes.ts"
import type { EffectiveLimits } from "../../src/domain/Limits.ts"
import { freePort, type TestServerFailed } from "../../test/support/servers/processes.ts"

export const leaseS = 5

export interface Replica {
  readonly url: string
  /** SIGKILL, and waits until it is gone */
  readonly kill: Effect.Effect<void>
  /** SIGTERM; its exit code */
  readonly stop: Effect.Effect<number | null>
  /** starts it again on the same port; done when it is ready */
  readonly start: Effect.Effect<void>
  /** SIGSTOP and SIGCONT */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** of the process that runs now */
  readonly pid: () => number
  /** whether it has ended without being killed */
  readonly died: () => boolean
}

const root = fileURLToPath(new URL("../..", import.meta.url))

export const ready = (url: string) =>
  Effect.tryPromise(() =>
    fetch(`${url}/readyz`, { signal: AbortSignal.timeout(2000) }).then(async (response) => {
      await response.text()
      if (response.status !== 200) throw new Error(`not ready: ${response.status}`)
    })
  ).pipe(Effect.retry({ times: 400, schedule: Schedule.spaced("50 millis") }), Effect.orDie)

export const makeReplica = Effect.fnUntraced(function* (
  env: Readonly<Record<string, string>>,
  /** gets all it prints, piece by piece; without it errors go to this process's */
  heard?: (text: string) => void,
  /** the folder of another version */
  checkout = root
): Effect.fn.Return<Replica, TestServerFailed, Scope.Scope> {
  const port = yield* freePort
  const url = `http://127.0.0.1:${port}`
  let child: ChildProcess | undefined
  const signal = (name: NodeJS.Signals) => Effect.sync(() => void child?.kill(name))
  const kill = Effect.promise(async () => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, "exit")
    child.kill("SIGKILL")
    await gone
  })
  const stop = Effect.promise(async () => {
    if (child === undefined || child.exitCode !== null) return child?.exitCode ?? null
    const gone = once(child, "exit")
    child.kill("SIGTERM")
    await gone
    return child.exitCode
  })
  const start = Effect.gen(function* () {
    child = spawn(process.execPath, ["build/start.js"], {
      cwd: checkout,
      // As in the image (`Dockerfile`).
      env: { ...process.env, MALLOC_ARENA_MAX: "1", ...env, PORT: String(port) },
      stdio: heard === undefined ? ["ignore", "ignore", "inherit"] : ["ignore", "pipe", "pipe"]
    })
    for (const stream of [child.stdout, child.stderr]) {
      if (heard !== undefined) stream?.setEncoding("utf8").on("data", heard)
    }
    yield* ready(url)
  })
  yield* Effect.acquireRelease(start, () => kill)
  return {
    url,
    kill,
    stop,
    start,
    freeze: signal("SIGSTOP"),
    thaw: signal("SIGCONT"),
    pid: () => child?.pid ?? 0,
    died: () => child?.exitCode !== null || (child.signalCode !== null && child.signalCode !== "SIGKILL")
  }
})

/** Migrates, and has every admission kept with the store's own time of it. */
export const prepare = Effect.gen(function* () {
  yield* migrate
  const sql = yield* PgClient.PgClient
  yield* sql`CREATE TABLE admissions (request_id uuid PRIMARY KEY, key_id uuid, admitted_at timestamptz)`
  yield* sql`CREATE INDEX ON admissions (key_id, admitted_at)`
  yield* sql`CREATE FUNCTION admitted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO admissions VALUES (NEW.request_id, NEW.key_id, NEW.admitted_at) ON CONFLICT DO NOTHING;
    RETURN NULL; END $$`
  yield* sql`CREATE TRIGGER admitted AFTER INSERT ON intents FOR EACH ROW EXECUTE FUNCTION admitted()`
})

export interface Key {
  readonly name: string
  readonly secret: string
  readonly prefix: string
}

/** So high that they bind nobody; every key gets budgets, so that all its counters exist. */
const wide = { rpm: 1_000_000, tpm: 1_000_000_000, concurrent: 10_000 }
const endless = { budgetDaily: 1e12, budgetMonthly: 1e12, budgetTotal: 1e12 }

/** A tenant and a key of this name with these limits, where they differ from "as good as none". */
export const newKey = Effect.fnUntraced(function* (
  name: string,
  limits: Partial<EffectiveLimits> = {},
  budgets: KeyChange = {}
): Effect.fn.Return<Key, never, Registry> {
  const registry = yield* Registry
  return yield* Effect.gen(function* () {
    yield* registry.createTenant({ name, allowAllModels: true, ...wide, ...limits })
    const { secret, key } = yield* registry.createKey({ tenant: name, name })
    yield* registry.changeKey(key.prefix, { ...endless, ...budgets })
    return { name, secret, prefix: key.prefix }
  }).pipe(Effect.orDie)
})
