import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { readLifetime } from "../lifetime.ts"
import { keyHints } from "../tables.ts"
import { minute, noteAsText, show } from "../terminal.ts"

export const rotateKey = Command.make(
  "rotate-key",
  {
    prefix: flags.prefix("prefix"),
    grace: Flag.String("grace").pipe(
      Flag.withDescription(
        "How long the old key still works: 45m, 12h, 30d, 2w; default: until it is revoked"
      ),
      Flag.withMetavar("time"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function* ({ grace, prefix }) {
    const registry = yield* Registry
    const { key, replaced, secret } = yield* registry.rotateKey(
      prefix,
      Option.isSome(grace) ? yield* readLifetime(grace.value, "grace") : undefined
    )
    const end =
      replaced.status !== "active"
        ? `is ${replaced.status}`
        : replaced.expires === null
          ? "works until it is revoked"
          : `works until ${minute(replaced.expires)} UTC`
    yield* noteAsText(
      `Key ${key.prefix} takes the place of ${replaced.prefix}, which ${end}. It is shown this once:`
    )
    yield* show({ secret, ...key, replaced }, secret)
    for (const hint of keyHints(yield* registry.showKey(key.prefix))) yield* noteAsText(hint)
  })
).pipe(
  Command.withDescription(
    "Create a key with the scopes, limits, budgets and lifetime of another key, and print it once"
  ),
  Command.withExamples([
    {
      command: "tollgate rotate-key --prefix tg_4fJ2kQ9sX --grace 7d",
      description: "The old key ends by itself"
    },
    {
      command: "KEY=$(tollgate rotate-key --prefix tg_4fJ2kQ9sX)",
      description: "Revoke the old key later"
    }
  ])
)
