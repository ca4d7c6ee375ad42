/** `export` and `apply`: tenants and settings of keys in a file. */
import { Console, Data, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import {
  type Declaration,
  declarationOf,
  maxFileBytes,
  readDeclaration,
  writeDeclaration
} from "../declaration.ts"
import { described } from "../help.ts"
import { failIfUnreadable, nameUnreadable } from "../exit.ts"
import { readText } from "../files.ts"
import * as flags from "../flags.ts"
import { allowlistHints, installedModels } from "../modelHints.ts"
import { type Change, planOf } from "../plan.ts"
import { counted, escapeText, Json, notesAsText, show } from "../terminal.ts"

class TakeBack extends Data.TaggedError("TakeBack") {}

export const exportTenants = Command.make(
  "export",
  {},
  Effect.fnUntraced(function* () {
    const registry = yield* Registry
    const [tenants, keys] = [yield* registry.listTenants, yield* registry.listKeys()]
    const declaration = declarationOf(tenants.rows, keys.rows, yield* registry.listPins)
    yield* Console.log(writeDeclaration(declaration, yield* Json))
    yield* failIfUnreadable([...tenants.unreadable, ...keys.unreadable])
  })
).pipe(
  described(
    "Print all tenants, the settings of their keys and the pinned models as a file for apply",
    "tollgate export > tenants.yaml"
  )
)

const shown = (value: unknown): string => (value === null ? "none" : escapeText(JSON.stringify(value)))

const line = ({ after, before, field, subject }: Change): string =>
  field === "name" ? `+ ${subject}` : `  ${subject}: ${field} ${shown(before)} -> ${shown(after)}`

/** Models and targets of aliases of the tenants where these change. */
const changedModels = ({ tenants }: Declaration, changes: ReadonlyArray<Change>): ReadonlyArray<string> => {
  const changed = new Set(
    changes.filter(({ field }) => field === "models" || field === "aliases").map(({ subject }) => subject)
  )
  const names = tenants
    .filter(({ name }) => changed.has(`tenant ${name}`))
    .flatMap(({ aliases = {}, models = [] }) => [
      ...(models === "all" ? [] : models),
      ...Object.values(aliases)
    ])
  return [...new Set(names)]
}

export const apply = Command.make(
  "apply",
  {
    file: flags
      .text("file", "path", "Tenants and settings of keys, as export prints them; - is stdin")
      .pipe(Flag.withAlias("f")),
    dryRun: flags.toggle("dry-run", "Print what would change, and change nothing")
  },
  Effect.fnUntraced(function* ({ dryRun, file }) {
    const registry = yield* Registry
    const wanted = yield* readDeclaration(file, yield* readText(file, maxFileBytes))
    const { changes, run, unreadable } = yield* planOf(registry, file, wanted)
    yield* nameUnreadable(unreadable)
    // The database itself says whether each change is possible: a dry run makes them, and takes them back.
    yield* dryRun
      ? Effect.catchTag(
          registry.atomically(Effect.andThen(run, new TakeBack())),
          "TakeBack",
          () => Effect.void
        )
      : run
    const end =
      changes.length === 0
        ? "nothing to change"
        : `${counted(changes.length, "change")} ${dryRun ? "would be made" : "made"}`
    yield* show({ changes, applied: !dryRun }, [...changes.map(line), end].join("\n"))
    const models = changedModels(wanted, changes)
    if (models.length === 0) return
    yield* notesAsText(allowlistHints(yield* installedModels, models))
  })
).pipe(
  described(
    "Change tenants and settings of keys to what a file says, all or nothing",
    "tollgate apply -f tenants.yaml --dry-run",
    "tollgate apply -f tenants.yaml",
    ["tollgate export | ssh other tollgate apply -f -", "Read the file from stdin"]
  )
)
