/** `export` and `apply`: tenants and attributes of keys in a file, compared with what is in force. */
import { Console, Data, Effect, Predicate } from "effect"
import { Command, Flag } from "effect/cli"
import { type AdminError, UnknownKey } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import type { Registry } from "../../src/admin/Registry.ts"
import { snakeCase } from "../../src/domain/text.ts"
import { withoutDefaultTag } from "../../src/domain/modelName.ts"
import {
  type Declaration,
  declarationOf,
  type DeclaredTenant,
  keyChangeOf,
  maxFileBytes,
  readDeclaration,
  tenantChangeOf,
  writeDeclaration
} from "../declaration.ts"
import { FileInvalid } from "../errorMessages.ts"
import { described } from "../help.ts"
import { readText } from "../files.ts"
import * as flags from "../flags.ts"
import { inForce } from "../gateways.ts"
import { allowlistHints, installedModels } from "../modelHints.ts"
import { counted, escapeText, Json, notesAsText, show } from "../terminal.ts"

class TakeBack extends Data.TaggedError("TakeBack") {}

export const exportTenants = Command.make(
  "export",
  { tenant: flags.owner.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Needs.registry
    const tenants = tenant === undefined ? yield* registry.listTenants : [yield* registry.showTenant(tenant)]
    const keys = yield* registry.listKeys(tenant)
    const declaration = declarationOf(tenants, keys)
    yield* Console.log(yield* writeDeclaration(declaration, yield* Json))
  })
).pipe(
  described(
    "Print tenants and the attributes of their keys as a file for apply",
    "tollgate export > tenants.yaml",
    "tollgate export --tenant acme > acme.yaml"
  )
)

/** One changed field. `null`: none. */
interface Change {
  /** `tenant acme` or `key tg_4fJ2kQ9sX` */
  readonly subject: string
  readonly field: string
  readonly before: unknown
  readonly after: unknown
}

/** Lists of models and of rules have no order. */
const textOf = (value: unknown): string =>
  JSON.stringify(Array.isArray(value) ? value.map((one) => JSON.stringify(one)).toSorted() : value)

const same = (one: unknown, other: unknown): boolean => one === other || textOf(one) === textOf(other)

/** A tenant without its keys, as the database stores it: each model once, aliases without `:latest` in any order. */
const normal = (tenant: DeclaredTenant): object => ({
  ...tenant,
  keys: undefined,
  models: Array.isArray(tenant.models) ? [...new Set(tenant.models)] : tenant.models,
  aliases:
    tenant.aliases &&
    Object.fromEntries(
      Object.entries(tenant.aliases)
        .map(([alias, model]) => [withoutDefaultTag(alias), model] as const)
        .toSorted(([one], [other]) => (one < other ? -1 : 1))
    )
})

/** The fields of `wanted` that differ; a nested object counts by its own fields. */
const differences = (subject: string, now: object, wanted: object, under = ""): ReadonlyArray<Change> =>
  Object.entries(wanted).flatMap(([field, after]): ReadonlyArray<Change> => {
    const before: unknown = Reflect.get(now, field) ?? (field === "budgets" ? {} : null)
    if (after === undefined || same(before, after)) return []
    return field === "budgets" && Predicate.isObject(before)
      ? differences(subject, before, after, "budgets.")
      : [{ subject, field: `${under}${snakeCase(field)}`, before, after }]
  })

/** Tenants and keys that the file does not name stay as they are. */
const planOf = Effect.fnUntraced(function* (
  registry: Registry["Service"],
  file: string,
  wanted: Declaration
) {
  const tenants = yield* registry.listTenants
  const keys = yield* registry.listKeys()
  const now = declarationOf(tenants, keys)
  const changes: Array<Change> = []
  const steps: Array<Effect.Effect<unknown, AdminError | FileInvalid>> = []
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const named = new Set<string>()
  const once = (subject: string) =>
    named.has(subject) ? invalid(`${subject} is there twice`) : Effect.sync(() => void named.add(subject))
  const plan = (
    subject: string,
    before: object,
    after: object,
    ...writes: ReadonlyArray<Effect.Effect<unknown, AdminError>>
  ) => {
    const differing = differences(subject, before, after)
    if (differing.length === 0) return
    changes.push(...differing)
    const write = Effect.all(writes, { discard: true })
    steps.push(
      Effect.catchTag(write, "InvalidValue", ({ expected, field }) =>
        invalid(`${subject}: ${field} must be ${expected}`)
      )
    )
  }

  for (const tenant of wanted.tenants) {
    const { enabled, keys: declaredKeys = [], name } = tenant
    yield* once(`tenant ${name}`)
    const present = now.tenants.find((one) => one.name === name)
    const attributes = tenantChangeOf(tenant)
    plan(
      `tenant ${name}`,
      present === undefined ? { name: null } : normal(present),
      normal(tenant),
      present === undefined
        ? registry.createTenant({ name, ...attributes })
        : registry.changeTenant(name, attributes),
      enabled === undefined ? Effect.void : registry.setTenantEnabled(name, enabled)
    )
    for (const key of declaredKeys) {
      const { enabled, prefix } = key
      const subject = `key ${prefix}`
      yield* once(subject)
      const found = keys.find((one) => one.prefix === prefix)
      if (found === undefined) return yield* new UnknownKey({ prefix })
      if (found.tenant !== name) return yield* invalid(`${subject} belongs to another tenant`)
      const current = present?.keys?.find((one) => one.prefix === prefix)
      if (current === undefined) return yield* invalid(`${subject} is revoked`)
      if (key.name !== undefined && key.name !== found.name)
        return yield* invalid(`${subject} is named ${JSON.stringify(found.name)}, and a name cannot change`)
      // `true` turns the log on and does not change the days.
      const logsAlready = key.promptLog === true && typeof current.promptLog === "number"
      plan(
        subject,
        current,
        logsAlready ? { ...key, promptLog: undefined } : key,
        registry.changeKey(prefix, keyChangeOf(key)),
        enabled === undefined ? Effect.void : registry.setKeyEnabled(prefix, enabled)
      )
    }
  }
  return { changes, run: registry.atomically(Effect.all(steps, { discard: true })) }
})

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
      .text("file", "path", "Tenants and attributes of keys, as export prints them; - is stdin")
      .pipe(Flag.withAlias("f")),
    dryRun: flags.toggle("dry-run", "Print what would change, and change nothing")
  },
  Effect.fnUntraced(function* ({ dryRun, file }) {
    const registry = yield* Needs.registry
    const wanted = yield* readDeclaration(file, yield* readText(file, maxFileBytes))
    const { changes, run } = yield* planOf(registry, file, wanted)
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
    if (changes.length > 0 && !dryRun) yield* inForce(null)
    const models = changedModels(wanted, changes)
    if (models.length === 0) return
    yield* notesAsText(allowlistHints(yield* installedModels, models))
  })
).pipe(
  described(
    "Change tenants and attributes of keys to what a file says, all or nothing",
    "tollgate apply -f tenants.yaml --dry-run",
    "tollgate apply -f tenants.yaml",
    ["tollgate export | ssh other tollgate apply -f -", "Read the file from stdin"]
  )
)
