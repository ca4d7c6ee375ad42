/**
 * Access to the embedded Postgres. Every connection needs the password in `DATA_DIR/postgres-password`, for every Unix user.
 *
 * *Details* The password is random, and only the user of the gateway can read its file. `pg_hba.conf` contains a
 * fingerprint of the password. When the rules of a folder differ (made by 1.0.0, restored from a backup, or left by an
 * interrupted start), the password is set again before other programs can reach the server.
 *
 * *Gotchas* A password file that others can read or own is replaced, because they may know the password.
 */
import { createHash, randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import type { SqlError } from "effect/sql/SqlError"
import { codeOf } from "../errorCode.ts"
import { layerPostgres, type SocketAddress } from "../Postgres.ts"

const shape = /^[\w-]{43}\n$/

/** Writes a new file that is on disk when this returns. Never follows a link, never changes an existing file. */
const writeNew = async (file: string, text: string): Promise<void> => {
  const handle = await fs.open(file, "wx", 0o600)
  try {
    await handle.writeFile(text)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

const syncFolder = async (folder: string): Promise<void> => {
  const handle = await fs.open(folder)
  await handle.sync().finally(() => handle.close())
}

/** Reads the password; undefined when the file is missing, malformed, or accessible to another user. */
const readPassword = async (file: string): Promise<string | undefined> => {
  try {
    const found = await fs.lstat(file)
    const mine = process.getuid === undefined || found.uid === process.getuid()
    if (!found.isFile() || !mine || (found.mode & 0o077) !== 0) return undefined
    const text = await fs.readFile(file, "utf8")
    return shape.test(text) ? text.trim() : undefined
  } catch (cause) {
    if (codeOf(cause) === "ENOENT") return undefined
    throw cause
  }
}

/** Returns the password of the database in `home`, and makes one when there is none. Two starts at once get the same one. */
export const databasePassword = async (home: string): Promise<Redacted.Redacted> => {
  const file = path.join(home, "postgres-password")
  const draft = `${file}.${randomBytes(4).toString("hex")}`
  for (let attempt = 0; ; attempt++) {
    const found = await readPassword(file)
    if (found !== undefined) return Redacted.make(found)
    await fs.rm(file, { force: true })
    await writeNew(draft, `${randomBytes(32).toString("base64url")}\n`)
    try {
      // Unlike rename, link fails when another start was faster.
      await fs.link(draft, file)
      await syncFolder(home)
    } catch (cause) {
      if (codeOf(cause) !== "EEXIST" || attempt === 2) throw cause
    } finally {
      await fs.rm(draft, { force: true })
    }
  }
}

/** The text of pg_hba.conf. Without a line for them, network and replication are refused. */
const rulesFor = (password: Redacted.Redacted): string => {
  const fingerprint = createHash("sha256").update(Redacted.value(password)).digest("hex").slice(0, 16)
  return `# Written by Tollgate for password ${fingerprint}.\nlocal all all scram-sha-256\n`
}

/** Rules for the moment in which the password is set. The socket is then in a folder that others cannot enter. */
export const setupRules = "local all all trust\n"

export const rulesFile = (data: string): string => path.join(data, "pg_hba.conf")

/** Returns false when the database may have another password or none. */
export const hasRules = async (data: string, password: Redacted.Redacted): Promise<boolean> => {
  try {
    return (await fs.readFile(rulesFile(data), "utf8")) === rulesFor(password)
  } catch (cause) {
    if (codeOf(cause) === "ENOENT") return false
    throw cause
  }
}

/** Replaces pg_hba.conf in one step. The owner of the folder owns the file. */
export const writeRules = async (data: string, password: Redacted.Redacted): Promise<void> => {
  const draft = `${rulesFile(data)}.${randomBytes(4).toString("hex")}`
  await writeNew(draft, rulesFor(password))
  if (process.getuid?.() === 0) {
    const { gid, uid } = await fs.stat(data)
    await fs.lchown(draft, uid, gid)
  }
  await fs.rename(draft, rulesFile(data))
  await syncFolder(data)
}

/** Sets the password of the role, through a server that runs with `setupRules`. */
export const setPassword = (
  address: SocketAddress,
  password: Redacted.Redacted
): Effect.Effect<void, SqlError> =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // The password is a parameter, because the text of a statement is traced.
    yield* sql`SELECT set_config('tollgate.password', ${Redacted.value(password)}, true)`
    yield* sql`DO $$ BEGIN
      EXECUTE format('ALTER ROLE %I PASSWORD %L', current_user, current_setting('tollgate.password'));
    END $$`
  }).pipe(
    (statements) => Effect.flatMap(SqlClient.SqlClient, (sql) => sql.withTransaction(statements)),
    Effect.provide(layerPostgres({ url: address, maxConnections: 1, statementTimeoutMs: 30_000 }))
  )
