import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { keyTable } from "../tables.ts"
import { show } from "../terminal.ts"

export const disableKey = Command.make(
  "disable-key",
  { prefix: flags.prefix("prefix") },
  Effect.fnUntraced(function* ({ prefix }) {
    const registry = yield* Registry
    const key = yield* registry.setKeyEnabled(prefix, false)
    yield* show(key, keyTable([key]))
  })
).pipe(
  Command.withDescription("Disable a key until it is enabled again"),
  Command.withExamples([{ command: "tollgate disable-key --prefix tg_4fJ2kQ9sX" }])
)
