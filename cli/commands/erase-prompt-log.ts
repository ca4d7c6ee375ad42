import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { show } from "../terminal.ts"

export const erasePromptLog = Command.make(
  "erase-prompt-log",
  { key: flags.prefix("key") },
  Effect.fnUntraced(function* ({ key }) {
    const registry = yield* Registry
    const erased = yield* registry.erasePromptLog(key)
    yield* show(
      { key, erased },
      `${key}: ${erased === 1 ? "1 logged prompt" : `${erased} logged prompts`} erased`
    )
  })
).pipe(
  Command.withDescription("Erase all logged prompts of a key; it does not turn its prompt log off"),
  Command.withExamples([{ command: "tollgate erase-prompt-log --key tg_4fJ2kQ9sX" }])
)
