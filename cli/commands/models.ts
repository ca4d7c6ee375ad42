/** The commands that list models, and set which of them a tenant may use. */
import { Effect, Option, Predicate, Record } from "effect"
import { Command, Flag } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import type { TenantInfo } from "../../src/admin/rows.ts"
import { utc } from "../../src/domain/Calendar.ts"
import { type Model } from "../../src/domain/Model.ts"
import { maxSystemBytes } from "../../src/domain/attributes.ts"
import { thinking } from "../../src/domain/storedRules.ts"
import { withoutDefaultTag } from "../../src/domain/modelName.ts"
import { Catalog } from "../../src/gates/models/Catalog.ts"
import { grantOf } from "../../src/domain/Caller.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { readText } from "../files.ts"
import { inForce } from "../gateways.ts"
import {
  aliasHints,
  allowlistHints,
  installedModels,
  namesOf,
  requireInstalled,
  tenantHints
} from "../modelHints.ts"
import { tenantTable } from "../tables.ts"
import { notes, notesAsText, show, showList, tableOf } from "../terminal.ts"

interface Listed {
  readonly name: string
  readonly size: number | null
  readonly modified: string | null
  /** with a tenant only: whether a request for the name is served */
  readonly effective?: boolean
  readonly aliasOf?: string
}

const listedOf = (models: ReadonlyArray<Model>, tenant: TenantInfo | undefined): ReadonlyArray<Listed> => {
  const factsOf = (model: Model | undefined) => ({
    size: model?.size ?? null,
    modified: model?.modifiedAt ?? null
  })
  const listed = models.map((model) => ({ name: model.name, ...factsOf(model) }))
  if (tenant === undefined) return listed
  const [catalog, names] = [new Catalog(models), namesOf(tenant)]
  const usable = new Set(catalog.offered(names).map(({ name }) => name))
  return [
    ...listed.map((model) => ({ ...model, effective: usable.has(model.name) })),
    ...tenant.modelAliases.map(({ alias, model }) => ({
      name: alias,
      ...factsOf(catalog.find(model)),
      aliasOf: model,
      // A model of the same name wins over an alias, which then leads nowhere.
      effective: catalog.resolve(names, alias)?.alias !== undefined
    }))
  ]
}

const formatDate = (text: string): string => {
  const date = new Date(text)
  return Number.isNaN(date.getTime()) ? text : utc.textOf(date.getTime())
}

export const listModels = Command.make(
  "list-models",
  { tenant: flags.owner.tenant },
  Effect.fnUntraced(function* ({ tenant: name }) {
    // The list itself needs no database.
    const tenant = name === undefined ? undefined : yield* (yield* Needs.registry).showTenant(name)
    const listed = listedOf(yield* Needs.models, tenant)
    yield* showList(listed, "no models", (models) =>
      tableOf(models, {
        MODEL: ({ aliasOf, name }) => (aliasOf === undefined ? name : `${name} = ${aliasOf}`),
        MODIFIED: ({ modified }) => modified && formatDate(modified),
        GB: ({ size }) => size && (size / 1e9).toFixed(2),
        ...(tenant === undefined ? {} : { USABLE: ({ effective }) => (effective ? "yes" : "no") })
      })
    )
  })
).pipe(
  described(
    "List the models of the model server; with --tenant, also which of them the tenant may use, and its aliases",
    "tollgate list-models",
    "tollgate list-models --tenant acme"
  )
)

/** `fast=llama3.2:3b,big=llama3.1:70b` */
const readAliases = (text: string): Option.Option<Readonly<Record<string, string>>> => {
  const pairs = flags.commaList(text).map((part) => /^([^=]+)=(.+)$/.exec(part))
  return pairs.includes(null)
    ? Option.none()
    : Option.some(Object.fromEntries(pairs.map((pair) => [pair?.[1]?.trim(), pair?.[2]?.trim()])))
}

const list = (name: string, description: string) =>
  flags.optional(Flag.map(flags.text(name, "list", description), flags.commaList))

/** Whether the tenant can use a model; without a catalog each model of its allowlist may be installed. */
const isUsable = (catalog: Catalog | undefined, tenant: TenantInfo): boolean =>
  tenant.allowAllModels ||
  (catalog === undefined
    ? tenant.allowedModels.length > 0
    : catalog.effective(namesOf(tenant).models).length > 0)

/** What a change took from the allowlist, and what it added. */
const listChanges = (before: TenantInfo, after: TenantInfo): ReadonlyArray<string> => {
  const notIn = (one: TenantInfo, other: TenantInfo) =>
    one.allowedModels.filter((model) => !other.allowedModels.includes(model)).join(", ")
  return [
    ["Removed", notIn(before, after)],
    ["Added", notIn(after, before)]
  ].flatMap(([what, models]) => (models === "" ? [] : [`${what}: ${models}`]))
}

/** The models of one key: a part of its tenant's. */
const setKeyModels = Effect.fnUntraced(function* (
  prefix: string,
  { models, yes, ...others }: { readonly models: ReadonlyArray<string> | undefined; readonly yes: boolean }
) {
  const registry = yield* Needs.registry
  if (models === undefined || Object.values(others).some((flag) => flag !== undefined)) {
    return yield* mustBe("models", "given with --key, and no other option")
  }
  const ownModels = models.join() === "none" ? null : models
  const before = yield* registry.showKey(prefix)
  const ofTenant = namesOf(yield* registry.showTenant(before.tenant)).models
  const granted = grantOf(ofTenant, ownModels ?? [])
  const alien = ownModels?.find((model) => granted !== "all" && !granted.has(withoutDefaultTag(model)))
  if (alien !== undefined) {
    return yield* mustBe("models", `models that the tenant may use, and ${alien} is none`)
  }
  if (!yes && ownModels?.length === 0 && before.ownModels?.length !== 0) {
    return yield* mustBe(
      "yes",
      'given too, because the key could use no model then; "none" lets it use all of its tenant\'s'
    )
  }
  const catalog = ownModels === null ? undefined : yield* installedModels
  if (!yes) yield* requireInstalled(catalog, "models", ownModels ?? [])
  const changed = yield* registry.changeKey(prefix, { ownModels })
  const shown = (own: ReadonlyArray<string> | null) =>
    own === null ? "all of its tenant's" : own.join(", ") || "none"
  yield* show(changed, `${prefix} may use ${shown(changed.ownModels)}`)
  yield* notesAsText([`Before: ${shown(before.ownModels)}`])
  if (ownModels !== null) yield* notes(allowlistHints(catalog, ownModels))
  yield* inForce(prefix)
})

export const setModels = Command.make(
  "set-models",
  {
    ...flags.owner,
    models: list(
      "models",
      'The new allowlist; empty allows no model. Of a key: those of its tenant\'s, or "none" for all'
    ),
    add: list("add", "Models to add to the allowlist"),
    remove: list("remove", "Models to take from the allowlist"),
    yes: flags.toggle("yes", "Also when the tenant can use no model then, or the model server lacks one"),
    allowAll: Flag.Boolean("allow-all").pipe(
      Flag.withDescription("Allow every installed model; --no-allow-all uses the allowlist again"),
      flags.optional
    ),
    aliases: flags.text("alias", "list", "Other names for models, as alias=model; other aliases stay").pipe(
      Flag.filterMap(readAliases, () => "alias=model, such as fast=llama3.2:3b"),
      flags.optional
    ),
    numCtx: flags.optional(
      flags.numberOrNone("num-ctx", "Window of the aliases that --alias names, for requests without num_ctx")
    ),
    think: flags.optional(
      Flag.Literals("think", [...thinking, "none"]).pipe(
        Flag.withDescription("Whether, or how hard, they think when a request does not say")
      )
    ),
    systemFile: flags.optionalText(
      "system-file",
      "path|none",
      "Their system text, for requests without one; - is stdin"
    ),
    removeAliases: list("remove-alias", "Aliases to remove")
  },
  Effect.fnUntraced(function* ({ key, tenant: named, ...given }) {
    const owner = yield* flags.readOwner({ key, tenant: named }, "tenant")
    if ("key" in owner) return yield* setKeyModels(owner.key, given)
    const { tenant } = owner
    const { add, aliases, allowAll, models, numCtx, remove, removeAliases, systemFile, think, yes } = given
    const system =
      systemFile === undefined || systemFile === "none"
        ? systemFile
        : (yield* readText(systemFile, maxSystemBytes)).trimEnd()
    const noneOf = <A>(value: A | "none" | undefined) => (value === "none" ? null : value)
    const defaults = { num_ctx: numCtx, think: noneOf(think), system: noneOf(system) }
    const aliasDefaults = Record.filter(defaults, Predicate.isNotUndefined)
    if (aliases === undefined && Object.keys(aliasDefaults).length > 0)
      return yield* mustBe("alias", "given with --num-ctx, --think and --system-file: what they are for")
    const registry = yield* Needs.registry
    if ([add, aliases, allowAll, models, remove, removeAliases].every((flag) => flag === undefined)) {
      return yield* mustBe(
        "models",
        "given, or --add, --remove, --allow-all, --no-allow-all, --alias or --remove-alias"
      )
    }
    if (models !== undefined && (add !== undefined || remove !== undefined)) {
      return yield* mustBe("models", "given without --add and --remove")
    }
    if (models?.join() === "none") {
      return yield* mustBe("models", 'names of models: "" allows none, --allow-all allows all')
    }
    const catalog =
      aliases === undefined && allowAll !== false && [models, add, remove].every((one) => one === undefined)
        ? undefined
        : yield* installedModels
    // An alias cannot take the name of a model: the model would win, and the alias would do nothing.
    if (Object.keys(aliases ?? {}).some((alias) => catalog?.find(withoutDefaultTag(alias)) !== undefined)) {
      return yield* mustBe("alias", "a name that no installed model has")
    }
    if (!yes) {
      yield* requireInstalled(catalog, "models", models ?? [])
      yield* requireInstalled(catalog, "add", add ?? [])
    }
    const { before, changed } = yield* registry.atomically(
      Effect.gen(function* () {
        const before = yield* registry.showTenant(tenant)
        const changed = yield* registry.setModels(tenant, {
          models,
          add,
          remove,
          allowAll,
          aliases,
          aliasDefaults,
          removeAliases
        })
        // Nothing is changed when this fails.
        if (!yes && isUsable(catalog, before) && !isUsable(catalog, changed)) {
          return yield* mustBe(
            "yes",
            "given too, because the tenant could use no model then: every model request would get 403"
          )
        }
        return { before, changed }
      })
    )
    yield* show(changed, tenantTable([changed]))
    yield* notesAsText(listChanges(before, changed))
    const noEffect =
      "The allowlist has no effect while all models are allowed. Use --no-allow-all to apply it."
    yield* notes(
      new Set([
        ...allowlistHints(catalog, [...(models ?? []), ...(add ?? [])]),
        ...aliasHints(catalog, changed, aliases ?? {}),
        ...tenantHints(changed),
        ...(changed.allowAllModels && changed.allowedModels.length > 0 ? [noEffect] : [])
      ])
    )
    yield* inForce(null)
  })
).pipe(
  described(
    "Set which models a tenant may use, and under which other names",
    ["tollgate set-models --key tg_4fJ2kQ9sX --models llama3.2:1b", "One key of the tenant"],
    "tollgate set-models --tenant acme --models llama3.2:1b,nomic-embed-text:latest",
    "tollgate set-models --tenant acme --allow-all",
    "tollgate set-models --tenant acme --alias fast=llama3.2:1b",
    [
      "tollgate set-models --tenant acme --alias long=llama3.2:3b --num-ctx 32768",
      "What people change a Modelfile for"
    ],
    "tollgate set-models --tenant acme --remove-alias fast"
  )
)
