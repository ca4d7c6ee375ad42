import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import { tenantTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const listTenants = Command.make(
  "list-tenants",
  {},
  Effect.fnUntraced(function* () {
    const registry = yield* Registry
    const tenants = yield* registry.listTenants
    yield* show(tenants, tenants.length === 0 ? "no tenants" : tenantTable(tenants))
  })
).pipe(
  Command.withDescription("List the tenants with their limits and models"),
  Command.withExamples([{ command: "tollgate list-tenants --json" }])
)
