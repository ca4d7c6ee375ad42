/** The commands that show and erase logged prompts. */
import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import type { LoggedPrompt } from "../../src/admin/rows.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { counted, escapeText, show, showList } from "../terminal.ts"
import { times } from "../zone.ts"

const formatOf =
  (timeText: Effect.Success<typeof times>) =>
  (entry: LoggedPrompt): string =>
    [
      `${timeText(entry.created)}  ${entry.requestId}  ${entry.endpoint}${entry.truncated ? "  (cut)" : ""}`,
      `> ${escapeText(entry.prompt)}`,
      escapeText(entry.answer)
    ].join("\n")

export const showPromptLog = Command.make(
  "show-prompt-log",
  {
    key: flags.key("key"),
    sinceMs: flags.optional(flags.lifetime("since", "Only prompts of the last 45m, 12h, 30d or 2w")),
    limit: flags.count("limit", "Number of prompts, newest first; 1 to 1000").pipe(Flag.withDefault(20))
  },
  Effect.fnUntraced(function* ({ key: named, ...which }) {
    const [registry, key] = yield* flags.keyIn(named)
    const format = formatOf(yield* times)
    // Oldest first, so that a terminal shows the newest at its end.
    yield* showList(yield* registry.showPromptLog(key, which), `${key}: nothing is logged`, (found) =>
      found.toReversed().map(format).join("\n\n")
    )
  })
).pipe(
  described(
    "Show the logged prompts of a key: prompts as JSON, answers as text",
    "tollgate show-prompt-log --key tg_4fJ2kQ9sX --since 12h",
    "tollgate show-prompt-log --key tg_4fJ2kQ9sX --limit 1000 --json"
  )
)

export const erasePromptLog = Command.make(
  "erase-prompt-log",
  { key: flags.key("key") },
  Effect.fnUntraced(function* ({ key: named }) {
    const [registry, key] = yield* flags.keyIn(named)
    const erased = yield* registry.erasePromptLog(key)
    yield* show({ key, erased }, `${key}: ${counted(erased, "logged prompt")} erased`)
  })
).pipe(
  described(
    "Erase all logged prompts of a key; it does not turn its prompt log off",
    "tollgate erase-prompt-log --key tg_4fJ2kQ9sX"
  )
)
