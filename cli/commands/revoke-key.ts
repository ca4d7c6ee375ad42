import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { show } from "../terminal.ts"

export const revokeKey = Command.make(
  "revoke-key",
  { prefix: flags.prefix("prefix") },
  Effect.fnUntraced(function* ({ prefix }) {
    const registry = yield* Registry
    const { already } = yield* registry.revokeKey(prefix)
    yield* show(
      { prefix, status: "revoked", already },
      already ? `${prefix} was already revoked` : `${prefix} is revoked`
    )
  })
).pipe(
  Command.withDescription("Revoke a key for ever; it takes effect on all replicas within about a second"),
  Command.withExamples([{ command: "tollgate revoke-key --prefix tg_4fJ2kQ9sX" }])
)
