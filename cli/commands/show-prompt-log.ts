import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { type LoggedPrompt, Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { readLifetime } from "../lifetime.ts"
import { escapeText, minute, show } from "../terminal.ts"

const format = (entry: LoggedPrompt): string =>
  [
    `${minute(entry.created)}  ${entry.requestId}  ${entry.endpoint}${entry.truncated ? "  (cut)" : ""}`,
    `> ${escapeText(entry.prompt)}`,
    escapeText(entry.answer)
  ].join("\n")

export const showPromptLog = Command.make(
  "show-prompt-log",
  {
    key: flags.prefix("key"),
    since: Flag.String("since").pipe(
      Flag.withDescription("Only prompts of the last 45m, 12h, 30d or 2w"),
      Flag.withMetavar("time"),
      Flag.optional
    ),
    limit: Flag.Int("limit").pipe(
      Flag.withDescription("Number of prompts, newest first; 1 to 1000"),
      Flag.withMetavar("n"),
      Flag.withDefault(20)
    )
  },
  Effect.fnUntraced(function* ({ key, limit, since }) {
    const registry = yield* Registry
    const sinceMs = Option.isSome(since) ? yield* readLifetime(since.value, "since") : undefined
    const found = yield* registry.showPromptLog(key, {
      limit,
      ...(sinceMs === undefined ? {} : { sinceMs })
    })
    // Oldest first, so that a terminal shows the newest at its end.
    yield* show(
      found,
      found.length === 0 ? `${key}: nothing is logged` : found.toReversed().map(format).join("\n\n")
    )
  })
).pipe(
  Command.withDescription("Show the logged prompts of a key: prompts as JSON, answers as text"),
  Command.withExamples([
    { command: "tollgate show-prompt-log --key tg_4fJ2kQ9sX --since 12h" },
    { command: "tollgate show-prompt-log --key tg_4fJ2kQ9sX --limit 1000 --json" }
  ])
)
