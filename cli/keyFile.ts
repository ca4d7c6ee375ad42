/** The files of `create-keys`: the names that it reads, and the keys that it writes. */
import { Effect, FileSystem, Option } from "effect"
import * as path from "node:path"
import type { MadeKey, OwnValues } from "../src/admin/rows.ts"
import * as Values from "../src/admin/Values.ts"
import { csv, readCsv, unquoted } from "./csv.ts"
import { FileInvalid } from "./errorMessages.ts"
import { readText } from "./files.ts"
import * as flags from "./flags.ts"
import { litellmTable } from "./litellm.ts"
import { aDeadline, readDeadline } from "./times.ts"

const maxBytes = 4 * 1024 * 1024
const maxNames = 10_000

/** A name of the file, with what its key has of its own, and what is only told on in the file of keys. */
export interface Person {
  readonly name: string
  readonly own: OwnValues
  readonly more: More
}

/** The cells of further columns, by the name of the column. */
type More = ReadonlyMap<string, string>

const header = ["name", "prefix", "key"]

/** The columns that are no attribute with an option: a list of models, and the end of the key. */
const listed: Readonly<Record<string, readonly [attribute: string, read: (text: string) => unknown]>> = {
  models: ["ownModels", flags.commaList],
  "expires-at": ["expiresAt", (text) => text]
}

/**
 * One name a line, or a table whose first line names its columns, one of them `name`. Any other table is refused: a name such
 * as `Garcia, Ana` would lose its second half. A column with the name of an option of `create-key` is that option.
 */
export const readPeople = Effect.fnUntraced(function* (file: string, tokensPerDollar?: number) {
  const text = yield* readText(file, maxBytes)
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const rows = /^\s*\{/.test(text)
    ? yield* Effect.mapError(litellmTable(text, tokensPerDollar), invalid)
    : Option.getOrUndefined(readCsv(text))
  if (rows === undefined) return yield* invalid("a quote is not closed, or has text behind it")
  const first = (rows[0] ?? []).map((cell) => cell.toLowerCase())
  const column = first.indexOf("name")
  if (column === -1 && rows.some(({ length }) => length > 1)) {
    return yield* invalid('the lines have several columns, and the first line calls none of them "name"')
  }
  const width = rows[0]?.length ?? 0
  if (column !== -1 && rows.some((row) => row.slice(width).some((cell) => cell !== ""))) {
    return yield* invalid("a line has more columns than the first: a name with a separator needs quotes")
  }
  const double = first.find(
    (cell, at) => column !== -1 && (first.indexOf(cell) !== at || header.indexOf(cell) > 0)
  )
  if (double !== undefined)
    return yield* invalid(`the column ${JSON.stringify(double)} would be in the file of keys twice`)
  const personOf = (row: ReadonlyArray<string>): Effect.Effect<Person, FileInvalid> => {
    const [own, more] = [new Map<string, unknown>(), new Map<string, string>()]
    for (const [at, title] of first.entries()) {
      const cell = row[at] ?? ""
      if (at === column || cell === "") continue
      const [attribute, read] = listed[title] ?? flags.columnOf(title) ?? []
      if (attribute === undefined || read === undefined) more.set(rows[0]?.[at] ?? title, cell)
      else own.set(attribute, read(cell) ?? cell)
    }
    const name = row[column] ?? ""
    const { expiresAt, ...attributes } = Object.fromEntries(own)
    const ends = Option.getOrUndefined(readDeadline(String(expiresAt ?? "")))
    if (expiresAt !== undefined && ends === undefined)
      return Effect.fail(invalid(`${JSON.stringify(name)}: expires-at must be ${aDeadline}`))
    return Effect.mapBoth(Values.keyChange(attributes), {
      onSuccess: (change) => ({ name, own: { ...change, ...(ends && { expiresAt: ends }) }, more }),
      onFailure: ({ expected, field }) => invalid(`${JSON.stringify(name)}: ${field} must be ${expected}`)
    })
  }
  const people =
    column === -1
      ? rows.map(([name = ""]): Person => ({ name, own: {}, more: new Map() }))
      : yield* Effect.forEach(rows.slice(1), personOf)
  const names = people.map(({ name }) => name)
  const twice = names.find((name, at) => names.indexOf(name) !== at)
  if (names.length === 0) return yield* invalid("there are no names in it")
  if (names.length > maxNames) return yield* invalid(`there are more than ${maxNames} names in it`)
  if (twice !== undefined) return yield* invalid(`the name ${JSON.stringify(twice)} is in it twice`)
  return people
})

/** A key with what is told on. */
export interface ListedKey extends MadeKey {
  readonly more: More
}

/** The titles of the columns of keys. */
export const titlesOf = (keys: Iterable<{ readonly more: More }>): ReadonlyArray<string> => [
  ...new Set([...keys].flatMap(({ more }) => [...more.keys()]))
]

export const cellsOf = ({ more, name, prefix, secret }: ListedKey, titles: ReadonlyArray<string>) => [
  name,
  prefix,
  secret,
  ...titles.map((title) => more.get(title) ?? "")
]

const toCsv = (keys: ReadonlyArray<ListedKey>): string => {
  const titles = titlesOf(keys)
  return `${csv(
    [...header, ...titles],
    keys.map((key) => cellsOf(key, titles))
  )}\n`
}

/** The keys of a file that `create-keys` wrote. */
const readKeys = Effect.fnUntraced(function* (file: string) {
  const [first = [], ...keys] = Option.getOrElse(readCsv(yield* readText(file, maxBytes)), () => [])
  const [own, titles] = [first.slice(0, header.length), first.slice(header.length)]
  if (own.join() !== header.join() || keys.some(({ length }) => length !== first.length)) {
    return yield* new FileInvalid({
      file,
      problem: `it is no file that create-keys wrote: its first line must begin with ${header.join()}`
    })
  }
  return keys.map(([name = "", prefix = "", secret = "", ...cells]): ListedKey => ({
    name: unquoted(name),
    prefix,
    secret,
    more: new Map(titles.flatMap((title, at) => (cells[at] ? [[unquoted(title), unquoted(cells[at])]] : [])))
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
export const writeKeys = (file: string, keys: ReadonlyArray<ListedKey>, ended: ReadonlyArray<ListedKey>) =>
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
