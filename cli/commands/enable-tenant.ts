import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { tenantHints } from "../modelHints.ts"
import { tenantTable } from "../tables.ts"
import { noteAsText, show } from "../terminal.ts"

export const enableTenant = Command.make(
  "enable-tenant",
  { tenant: flags.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Registry
    const changed = yield* registry.setTenantEnabled(tenant, true)
    yield* show(changed, tenantTable([changed]))
    yield* Effect.forEach(tenantHints(changed), noteAsText, { discard: true })
  })
).pipe(
  Command.withDescription("Enable a disabled tenant"),
  Command.withExamples([{ command: "tollgate enable-tenant --tenant acme" }])
)
