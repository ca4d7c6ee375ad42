import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { show } from "../terminal.ts"

export const setEndUser = Command.make(
  "set-end-user",
  {
    key: flags.prefix("key"),
    header: Flag.String("header").pipe(
      Flag.withDescription('Header with the end user of a request; "none" removes it'),
      Flag.withMetavar("name|none")
    )
  },
  Effect.fnUntraced(function* ({ header, key: prefix }) {
    const registry = yield* Registry
    const key = yield* registry.setEndUserHeader(prefix, header === "none" ? null : header)
    yield* show(
      key,
      key.endUserHeader === null
        ? `${key.prefix}: no header with the end user`
        : `${key.prefix}: the audit stores ${key.endUserHeader} as the end user of a request`
    )
  })
).pipe(
  Command.withDescription("Set the header with the end user of a key's requests"),
  Command.withExamples([
    { command: "tollgate set-end-user --key tg_4fJ2kQ9sX --header X-OpenWebUI-User-Id" },
    { command: "tollgate set-end-user --key tg_4fJ2kQ9sX --header none" }
  ])
)
