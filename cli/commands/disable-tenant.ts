import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { tenantTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const disableTenant = Command.make(
  "disable-tenant",
  { tenant: flags.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Registry
    const changed = yield* registry.setTenantEnabled(tenant, false)
    yield* show(changed, tenantTable([changed]))
  })
).pipe(
  Command.withDescription("Disable all keys of a tenant until it is enabled again"),
  Command.withExamples([{ command: "tollgate disable-tenant --tenant acme" }])
)
