import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { keyHints, keyTable } from "../tables.ts"
import { noteAsText, show } from "../terminal.ts"

export const enableKey = Command.make(
  "enable-key",
  { prefix: flags.prefix("prefix") },
  Effect.fnUntraced(function* ({ prefix }) {
    const registry = yield* Registry
    const key = yield* registry.setKeyEnabled(prefix, true)
    yield* show(key, keyTable([key]))
    for (const hint of keyHints(yield* registry.showKey(prefix))) yield* noteAsText(hint)
  })
).pipe(
  Command.withDescription("Enable a disabled key"),
  Command.withExamples([{ command: "tollgate enable-key --prefix tg_4fJ2kQ9sX" }])
)
