/** Keys for many people at once. */
import { Array as Arr, Console, Effect, FileSystem, Ref, Stdio } from "effect"
import { Command } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import type { MadeKey } from "../../src/admin/rows.ts"
import * as Values from "../../src/admin/Values.ts"
import { csvLines } from "../csv.ts"
import { described } from "../help.ts"
import { FileInvalid } from "../errorMessages.ts"
import * as flags from "../flags.ts"
import {
  cellsOf,
  type ListedKey,
  type Person,
  readKeysIfAny,
  readPeople,
  titlesOf,
  unusedFile,
  writeKeys
} from "../keyFile.ts"
import { counted, escapeText, Json, noteAsText, notesAsText, show } from "../terminal.ts"
import { keyCreation, newKeyOf } from "./keys.ts"

/** So many keys are made in one transaction. */
const batch = 100

/** Where the keys go: a file, or stdout. */
const target = Effect.fnUntraced(function* (out: string | undefined) {
  if (out !== undefined && out !== "-") return out
  if (yield* Json) return yield* mustBe("out", "a file when --json is given")
  if (out === undefined && process.stdout.isTTY) {
    return yield* mustBe("out", 'a file, such as keys.csv, or "-" to print the keys on this terminal')
  }
  return undefined
})

interface Kept {
  readonly listed: ReadonlySet<string>
  readonly ended: ReadonlyArray<MadeKey>
}

type People = ReadonlyMap<string, Person>

const listedOf = (made: ReadonlyArray<MadeKey>, people: People): ReadonlyArray<ListedKey> =>
  made.map((key) => ({ ...key, more: people.get(key.name)?.more ?? new Map() }))

/**
 * Stores new keys before they are in force. A process that dies between leaves lines of keys that never will be: the next run
 * takes them out, because their names have no live key.
 */
const keepIn = Effect.fnUntraced(function* (file: string, kept: Ref.Ref<Kept>, people: People) {
  const services = yield* Effect.context<FileSystem.FileSystem | Stdio.Stdio>()
  return <E>(
    made: ReadonlyArray<MadeKey>,
    livingOf: (prefixes: ReadonlyArray<string>) => Effect.Effect<ReadonlySet<string>, E>
  ) =>
    Effect.gen(function* () {
      const before = yield* readKeysIfAny(file)
      const all = [...before, ...listedOf(made, people)]
      // The new keys are in the transaction already.
      const living = yield* livingOf(all.map(({ prefix }) => prefix))
      const ended = before.filter(({ prefix }) => !living.has(prefix))
      const keys = all.filter(({ prefix }) => living.has(prefix))
      if (made.length > 0 || ended.length > 0) yield* writeKeys(file, keys, ended)
      yield* Ref.update(kept, (one) => ({
        listed: new Set(keys.map(({ prefix }) => prefix)),
        ended: [...one.ended, ...ended]
      }))
    }).pipe(Effect.provideContext(services))
})

const print = (people: People) => (made: ReadonlyArray<MadeKey>) => {
  const titles = titlesOf(people.values())
  return made.length === 0
    ? Effect.void
    : Console.log(csvLines(listedOf(made, people).map((key) => cellsOf(key, titles))))
}

type Named = Pick<MadeKey, "name" | "prefix">

/** A line about some keys, and a line for each of them. */
const section = (keys: ReadonlyArray<Named>, about: string): ReadonlyArray<string> =>
  keys.length === 0 ? [] : [about, ...keys.map(({ name, prefix }) => `  ${prefix}  ${escapeText(name)}`)]

export const createKeys = Command.make(
  "create-keys",
  {
    tenant: flags.tenant,
    names: flags.text(
      "names",
      "path",
      'One name a line, or a table with a column "name", whose other columns may be options such as "daily"; or the keys of LiteLLM as JSON; "-" reads it from stdin'
    ),
    tokensPerDollar: flags.optional(
      flags.count(
        "tokens-per-dollar",
        "For keys of LiteLLM: the tokens that a dollar of their budgets becomes"
      )
    ),
    out: flags.optionalText(
      "out",
      "path",
      'The file for name,prefix,key, which only you may read; "-" prints them; default: stdout, unless it is a terminal'
    ),
    ...keyCreation
  },
  Effect.fnUntraced(function* ({ names: source, out, tenant, tokensPerDollar, ...given }) {
    const registry = yield* Needs.registry
    const file = yield* target(out)
    const found = yield* readPeople(source, tokensPerDollar)
    const people = new Map(found.map((person) => [person.name, person]))
    const names = [...people.keys()]
    yield* Effect.forEach(names, (name) =>
      Effect.mapError(
        Values.validate("names", Values.name, name),
        ({ expected }) =>
          new FileInvalid({ file: source, problem: `${JSON.stringify(name)} must be ${expected}` })
      )
    )
    const kept = yield* Ref.make<Kept>({ listed: new Set(), ended: [] })
    const keep = file === undefined ? print(people) : yield* keepIn(file, kept, people)
    const own = new Map(found.map(({ name, own }) => [name, own]))
    const common = { tenant, own, ...(yield* newKeyOf(given)) }
    let [created, seen] = [0, 0]
    const skipped: Array<Named> = []
    for (const some of [[], ...Arr.chunksOf(names, batch)]) {
      const done = yield* registry.createKeys({ ...common, names: some }, keep)
      if (file === undefined && seen === 0 && some.length === 0)
        yield* Console.log(csvLines([["name", "prefix", "key", ...titlesOf(found)]]))
      created += done.made.length
      seen += some.length
      skipped.push(...done.skipped)
      if (some.length > 0) yield* noteAsText(`${seen} of ${counted(names.length, "name")}`)
    }
    const { ended, listed } = yield* Ref.get(kept)
    const elsewhere = file === undefined ? [] : skipped.filter(({ prefix }) => !listed.has(prefix))
    yield* notesAsText([
      ...section(
        ended,
        `${counted(ended.length, "line")} of keys that are not in force went to ${unusedFile(file ?? "")}:`
      ),
      ...section(skipped, `${counted(skipped.length, "name")} had a live key and got no other:`),
      ...(elsewhere.length === 0
        ? []
        : [
            `${counted(elsewhere.length, "key")} of these ${elsewhere.length === 1 ? "is" : "are"} not in ${file}: use rotate-key when the text of a key is lost`
          ])
    ])
    const summary = {
      tenant,
      out: file ?? null,
      created,
      skipped: skipped.map(({ name, prefix }) => ({ name, prefix, inFile: listed.has(prefix) })),
      unused: ended.map(({ name, prefix }) => ({ name, prefix }))
    }
    const text = `${counted(created, "key")} created`
    yield* file === undefined ? noteAsText(text) : show(summary, `${text} in ${file}`)
  })
).pipe(
  described(
    "Create a key for each name of a file. Names that have a live key are left out, so a run that was interrupted is simply run again",
    "tollgate create-keys --tenant acme --names people.csv --out keys.csv",
    [
      "tollgate create-keys --tenant acme --names people.csv --daily 50000 > keys.csv",
      "With a budget for each"
    ]
  )
)
