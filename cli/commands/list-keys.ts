import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { keyOverviewTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const listKeys = Command.make(
  "list-keys",
  { tenant: Flag.optional(flags.tenant) },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Registry
    const keys = yield* registry.listKeys(Option.getOrUndefined(tenant))
    yield* show(keys, keys.length === 0 ? "no keys" : keyOverviewTable(keys))
  })
).pipe(
  Command.withDescription("List the keys of a tenant, or of all tenants; secrets are never shown"),
  Command.withExamples([
    { command: "tollgate list-keys" },
    { command: "tollgate list-keys --tenant acme --json" }
  ])
)
