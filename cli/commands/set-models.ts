import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { tenantTable } from "../tables.ts"
import { note, show } from "../terminal.ts"

export const setModels = Command.make(
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
    )
  },
  Effect.fnUntraced(function* ({ allowAll, models, tenant }) {
    const registry = yield* Registry
    if (Option.isNone(models) && Option.isNone(allowAll)) {
      return yield* new InvalidValue({
        field: "models",
        expected: "given, or --allow-all, or --no-allow-all"
      })
    }
    const changed = yield* registry.setModels(tenant, {
      ...(Option.isSome(models) ? { models: flags.commaList(models.value) } : {}),
      ...(Option.isSome(allowAll) ? { allowAll: allowAll.value } : {})
    })
    yield* show(changed, tenantTable([changed]))
    if (changed.allowAllModels && changed.allowedModels.length > 0) {
      yield* note("The allowlist has no effect while all models are allowed. Use --no-allow-all to apply it.")
    }
  })
).pipe(
  Command.withDescription("Set which models a tenant may use"),
  Command.withExamples([
    { command: "tollgate set-models --tenant acme --models llama3.2:1b,nomic-embed-text:latest" },
    { command: "tollgate set-models --tenant acme --allow-all" }
  ])
)
