import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { keyTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const listKeys = Command.make(
  "list-keys",
  { tenant: flags.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Registry
    const keys = yield* registry.listKeys(tenant)
    yield* show(keys, keys.length === 0 ? "no keys" : keyTable(keys))
  })
).pipe(
  Command.withDescription("List the keys of a tenant by their prefix; secrets are never shown"),
  Command.withExamples([{ command: "tollgate list-keys --tenant acme" }])
)
