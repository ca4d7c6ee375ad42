import { Effect, FileSystem, type Layer } from "effect"
import { Command, Flag } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import type { Backend } from "../../src/backend/Backend.ts"
import { type Declaration, maxFileBytes, readDeclaration, readState } from "../declaration.ts"
import { FileInvalid } from "../errorMessages.ts"
import { allowlistHints, installedModels } from "../modelHints.ts"
import { type Change, planOf } from "../plan.ts"
import { counted, escapeText, noteAsText, show } from "../terminal.ts"

const shown = (value: unknown): string => (value === null ? "none" : escapeText(JSON.stringify(value)))

const line = ({ after, before, field, subject }: Change): string =>
  field === "name" ? `+ ${subject}` : `  ${subject}: ${field} ${shown(before)} -> ${shown(after)}`

const readFile = Effect.fnUntraced(function* (file: string) {
  const fs = yield* FileSystem.FileSystem
  const unreadable = () => new FileInvalid({ file, problem: "the file cannot be read" })
  const { size } = yield* Effect.mapError(fs.stat(file), unreadable)
  if (Number(size) > maxFileBytes) {
    return yield* new FileInvalid({ file, problem: `the file has more than ${maxFileBytes} bytes` })
  }
  return yield* Effect.mapError(fs.readFileString(file), unreadable)
})

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

/** `backend` is built only when models change, because the rest needs no model server. */
export const makeApply = <E>(backend: Layer.Layer<Backend, E>) =>
  Command.make(
    "apply",
    {
      file: Flag.String("file").pipe(
        Flag.withAlias("f"),
        Flag.withDescription("Tenants and settings of keys, as export prints them"),
        Flag.withMetavar("path")
      ),
      dryRun: Flag.Boolean("dry-run").pipe(
        Flag.withDescription("Print what would change, and change nothing"),
        Flag.withDefault(false)
      )
    },
    Effect.fnUntraced(function* ({ dryRun, file }) {
      const registry = yield* Registry
      const wanted = yield* readDeclaration(file, yield* readFile(file))
      const { keys, tenants } = yield* readState(registry)
      const { changes, run } = yield* planOf(registry, file, wanted, tenants, keys)
      if (!dryRun) {
        yield* Effect.catchTag(run, "InvalidValue", ({ expected, field }) =>
          Effect.fail(new FileInvalid({ file, problem: `${field} must be ${expected}` }))
        )
      }
      const end =
        changes.length === 0
          ? "nothing to change"
          : `${counted(changes.length, "change")} ${dryRun ? "would be made" : "made"}`
      yield* show({ changes, applied: !dryRun }, [...changes.map(line), end].join("\n"))
      const models = changedModels(wanted, changes)
      if (models.length === 0) return
      yield* Effect.forEach(allowlistHints(yield* installedModels(backend), models), noteAsText, {
        discard: true
      })
    })
  ).pipe(
    Command.withDescription("Change tenants and settings of keys to what a file says, all or nothing"),
    Command.withExamples([
      { command: "tollgate apply -f tenants.yaml --dry-run" },
      { command: "tollgate apply -f tenants.yaml" }
    ])
  )
