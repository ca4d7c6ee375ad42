/** The files of `create-keys`: the names that it reads, and the keys that it writes. */
import { Effect, FileSystem, Option } from "effect"
import * as path from "node:path"
import type { MadeKey } from "../src/admin/rows.ts"
import { csv, readCsv, unquoted } from "./csv.ts"
import { FileInvalid } from "./errorMessages.ts"
import { readText } from "./files.ts"

const maxBytes = 4 * 1024 * 1024
const maxNames = 10_000

/**
 * One name a line, or a table whose first line names its columns, one of them `name`. Any other table is refused: a name such
 * as `Garcia, Ana` would lose its second half.
 */
export const readNames = Effect.fnUntraced(function* (file: string) {
  const text = yield* readText(file, maxBytes)
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const rows = Option.getOrUndefined(readCsv(text))
  if (rows === undefined) return yield* invalid("a quote is not closed, or has text behind it")
  const column = (rows[0] ?? []).findIndex((cell) => cell.toLowerCase() === "name")
  if (column === -1 && rows.some(({ length }) => length > 1)) {
    return yield* invalid('the lines have several columns, and the first line calls none of them "name"')
  }
  const width = rows[0]?.length ?? 0
  if (column !== -1 && rows.some((row) => row.slice(width).some((cell) => cell !== ""))) {
    return yield* invalid("a line has more columns than the first: a name with a separator needs quotes")
  }
  const names =
    column === -1 ? rows.map(([name = ""]) => name) : rows.slice(1).map((row) => row[column] ?? "")
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (names.length === 0) return yield* invalid("there are no names in it")
  if (names.length > maxNames) return yield* invalid(`there are more than ${maxNames} names in it`)
  if (twice !== undefined) return yield* invalid(`the name ${JSON.stringify(twice)} is in it twice`)
  return names
})

const header = ["name", "prefix", "key"]

const toCsv = (keys: ReadonlyArray<MadeKey>): string =>
  `${csv(
    header,
    keys.map(({ name, prefix, secret }) => [name, prefix, secret])
  )}\n`

/** The keys of a file that `create-keys` wrote. */
const readKeys = Effect.fnUntraced(function* (file: string) {
  const rows = Option.getOrElse(readCsv(yield* readText(file, maxBytes)), () => [])
  const [first = [], ...keys] = rows
  if (first.join() !== header.join() || keys.some(({ length }) => length !== header.length)) {
    return yield* new FileInvalid({
      file,
      problem: `it is no file that create-keys wrote: its first line must be ${header.join()}`
    })
  }
  return keys.map(([name = "", prefix = "", secret = ""]): MadeKey => ({
    name: unquoted(name),
    prefix,
    secret
  }))
})

/** The same; none when there is no such file. */
export const readKeysIfAny = Effect.fnUntraced(function* (file: string) {
  const fs = yield* FileSystem.FileSystem
  const exists = yield* Effect.orElseSucceed(fs.exists(file), () => true)
  return exists ? yield* readKeys(file) : []
})

/** What stands in the file after this survives a crash of the machine. Only its owner may read it. */
const writeDurably = Effect.fnUntraced(function* (file: string, text: string, flag: "a" | "wx") {
  const fs = yield* FileSystem.FileSystem
  const opened = yield* fs.open(file, { flag, mode: 0o600 })
  yield* opened.writeAll(Buffer.from(text))
  yield* opened.sync
}, Effect.scoped)

/**
 * Replaces the file by one with these keys, at once: whoever reads it sees the old file or the new one. Lines of `ended`, whose
 * keys are in no force, go to a file beside it: nothing is thrown away.
 */
export const writeKeys = (file: string, keys: ReadonlyArray<MadeKey>, ended: ReadonlyArray<MadeKey>) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const [next, folder] = [`${file}.new`, path.dirname(path.resolve(file))]
    if (ended.length > 0) yield* writeDurably(unusedFile(file), toCsv(ended), "a")
    yield* fs.remove(next, { force: true })
    yield* writeDurably(next, toCsv(keys), "wx")
    yield* fs.rename(next, file)
    yield* Effect.scoped(Effect.flatMap(fs.open(folder, { flag: "r" }), ({ sync }) => sync))
  }).pipe(
    Effect.mapError(
      () =>
        new FileInvalid({
          file,
          problem:
            "the file cannot be written: choose another --out, or give yourself the right to write there"
        })
    )
  )

export const unusedFile = (file: string): string => `${file}.unused`
