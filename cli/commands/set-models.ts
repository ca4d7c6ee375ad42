import { Effect, type Layer, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { Registry } from "../../src/admin/Registry.ts"
import type { Backend } from "../../src/backend/Backend.ts"
import { type Catalog, withoutDefaultTag } from "../../src/gates/models/Catalog.ts"
import * as flags from "../flags.ts"
import { aliasHints, allowlistHints, installedModels, tenantHints } from "../modelHints.ts"
import { tenantTable } from "../tables.ts"
import { note, show } from "../terminal.ts"

type Aliases = { readonly [alias: string]: string }

/** `fast=llama3.2:3b,big=llama3.1:70b` */
const readAliases = (text: string): Effect.Effect<Aliases, InvalidValue> =>
  Effect.map(
    Effect.forEach(flags.commaList(text), (part) => {
      const [, alias = "", model = ""] = /^([^=]+)=(.+)$/.exec(part) ?? []
      return alias === ""
        ? new InvalidValue({ field: "alias", expected: "alias=model, such as fast=llama3.2:3b" })
        : Effect.succeed<readonly [string, string]>([alias.trim(), model.trim()])
    }),
    Object.fromEntries
  )

/** An alias cannot take the name of a model: the model would win, and the alias would do nothing. */
const checkNames = (catalog: Catalog | undefined, aliases: Aliases): Effect.Effect<void, InvalidValue> =>
  Object.keys(aliases).some((alias) => catalog?.find(withoutDefaultTag(alias)) !== undefined)
    ? new InvalidValue({ field: "alias", expected: "a name that no installed model has" })
    : Effect.void

/** `backend` is built only when models or aliases are given, because the rest needs no model server. */
export const makeSetModels = <E>(backend: Layer.Layer<Backend, E>) =>
  Command.make(
    "set-models",
    {
      tenant: flags.tenant,
      models: Flag.String("models").pipe(
        Flag.withDescription("The new allowlist; empty allows no model"),
        Flag.withMetavar("list"),
        Flag.optional
      ),
      allowAll: Flag.Boolean("allow-all").pipe(
        Flag.withDescription("Allow every installed model; --no-allow-all uses the allowlist again"),
        Flag.optional
      ),
      alias: Flag.String("alias").pipe(
        Flag.withDescription("Other names for models, as alias=model; other aliases stay"),
        Flag.withMetavar("list"),
        Flag.optional
      ),
      removeAlias: Flag.String("remove-alias").pipe(
        Flag.withDescription("Aliases to remove"),
        Flag.withMetavar("list"),
        Flag.optional
      )
    },
    Effect.fnUntraced(function* ({ alias, allowAll, models, removeAlias, tenant }) {
      const registry = yield* Registry
      if ([alias, allowAll, models, removeAlias].every((flag) => Option.isNone<unknown>(flag))) {
        return yield* new InvalidValue({
          field: "models",
          expected: "given, or --allow-all, --no-allow-all, --alias or --remove-alias"
        })
      }
      const aliases = Option.isSome(alias) ? yield* readAliases(alias.value) : undefined
      const named = Option.isSome(models) ? flags.commaList(models.value) : []
      const catalog =
        aliases === undefined && named.length === 0 ? undefined : yield* installedModels(backend)
      if (aliases !== undefined) yield* checkNames(catalog, aliases)
      const changed = yield* registry.setModels(tenant, {
        ...(Option.isSome(models) ? { models: named } : {}),
        ...(Option.isSome(allowAll) ? { allowAll: allowAll.value } : {}),
        ...(aliases === undefined ? {} : { aliases }),
        ...(Option.isSome(removeAlias) ? { removeAliases: flags.commaList(removeAlias.value) } : {})
      })
      yield* show(changed, tenantTable([changed]))
      const hints = [
        ...allowlistHints(catalog, named),
        ...aliasHints(catalog, changed, aliases ?? {}),
        ...tenantHints(changed)
      ]
      yield* Effect.forEach(new Set(hints), note, { discard: true })
      if (changed.allowAllModels && changed.allowedModels.length > 0) {
        yield* note(
          "The allowlist has no effect while all models are allowed. Use --no-allow-all to apply it."
        )
      }
    })
  ).pipe(
    Command.withDescription("Set which models a tenant may use, and under which other names"),
    Command.withExamples([
      { command: "tollgate set-models --tenant acme --models llama3.2:1b,nomic-embed-text:latest" },
      { command: "tollgate set-models --tenant acme --allow-all" },
      { command: "tollgate set-models --tenant acme --alias fast=llama3.2:1b" },
      { command: "tollgate set-models --tenant acme --remove-alias fast" }
    ])
  )
