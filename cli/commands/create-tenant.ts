import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import { givenLimits, limits } from "../flags.ts"
import { tenantHints } from "../modelHints.ts"
import { tenantTable } from "../tables.ts"
import { noteAsText, show } from "../terminal.ts"

export const createTenant = Command.make(
  "create-tenant",
  {
    name: Flag.String("name").pipe(Flag.withDescription("Name of the new tenant")),
    ...limits,
    allowAllModels: Flag.Boolean("allow-all-models").pipe(
      Flag.withDescription("Allow every installed model instead of an allowlist"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function* ({ allowAllModels, concurrent, name, rpm, tpm }) {
    const registry = yield* Registry
    const tenant = yield* registry.createTenant({
      name,
      allowAllModels,
      ...givenLimits({
        rpm: Option.getOrUndefined(rpm),
        tpm: Option.getOrUndefined(tpm),
        concurrent: Option.getOrUndefined(concurrent)
      })
    })
    yield* show(tenant, tenantTable([tenant]))
    yield* Effect.forEach(tenantHints(tenant), noteAsText, { discard: true })
  })
).pipe(
  Command.withDescription("Create a tenant: the owner of keys, limits and a model allowlist"),
  Command.withExamples([
    { command: "tollgate create-tenant --name acme", description: "Default limits, no models yet" },
    { command: "tollgate create-tenant --name acme --rpm 120 --allow-all-models" }
  ])
)
