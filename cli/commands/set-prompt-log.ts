import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { show } from "../terminal.ts"

const toggle = (name: "on" | "off", description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

export const setPromptLog = Command.make(
  "set-prompt-log",
  {
    key: flags.prefix("key"),
    on: toggle("on", "Store the prompts and answers of this key"),
    off: toggle("off", "Stop storing them"),
    retentionDays: Flag.Int("retention-days").pipe(
      Flag.withDescription("Days to store each prompt; default PROMPT_LOG_DEFAULT_RETENTION_DAYS"),
      Flag.withMetavar("n"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function* ({ key: prefix, off, on, retentionDays }) {
    const registry = yield* Registry
    if (on === off) {
      return yield* new InvalidValue({ field: "on", expected: "given, or --off, but not both" })
    }
    const key = yield* registry.setPromptLog(prefix, {
      on,
      ...(Option.isSome(retentionDays) ? { retentionDays: retentionDays.value } : {})
    })
    const days = key.promptLogDays === null ? "the default time" : `${key.promptLogDays} days`
    yield* show(
      key,
      key.promptLog
        ? `${key.prefix}: prompts and answers are kept for ${days}`
        : `${key.prefix}: prompts and answers are not kept`
    )
  })
).pipe(
  Command.withDescription("Store the prompts and answers of a key, or stop storing them"),
  Command.withExamples([{ command: "tollgate set-prompt-log --key tg_4fJ2kQ9sX --on --retention-days 7" }])
)
