/** The commands about single end users of a key. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { inForce } from "../gateways.ts"
import { Needs } from "../Needs.ts"
import { escapeText, show } from "../terminal.ts"

const switchUser = (name: string, blocked: boolean, about: string) =>
  Command.make(
    name,
    { key: flags.key("key"), ...flags.endUser },
    Effect.fnUntraced(function* ({ key: named, user, yes }) {
      const registry = yield* Needs.registry
      const prefix = yield* flags.keyOf(named)
      const stored = yield* flags.userOf(prefix, user, yes)
      const key = yield* registry.changeUser(prefix, stored, { blocked })
      const is = blocked ? "blocked: each of its requests gets 403" : "not blocked"
      yield* show(key, `${escapeText(stored)} of ${prefix} is ${is}`)
      yield* inForce(null)
    })
  ).pipe(described(about, `tollgate ${name} --key webui --user ada@example.com`))

export const blockUser = switchUser(
  "block-user",
  true,
  "Refuse all requests of one end user of a key. The others go on"
)

export const unblockUser = switchUser("unblock-user", false, "Take the requests of a blocked end user again")
