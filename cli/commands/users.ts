/** The commands about single end users of a key, and about all whom a key has served. */
import { Console, Effect } from "effect"
import { Command } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { jsonText } from "../../src/domain/json.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { inForce } from "../gateways.ts"
import { counted, escapeText, notesAsText, show } from "../terminal.ts"

const switchUser = (name: string, blocked: boolean, about: string) =>
  Command.make(
    name,
    { key: flags.key("key"), ...flags.endUser },
    Effect.fnUntraced(function* ({ key: named, user, yes }) {
      const [registry, prefix] = yield* flags.keyIn(named)
      const stored = yield* flags.userOf(prefix, user, yes)
      const key = yield* registry.changeRule({ key: prefix }, "userRules", stored, { blocked })
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

export const exportUser = Command.make(
  "export-user",
  { key: flags.key("key"), user: flags.optional(flags.endUser.user) },
  Effect.fnUntraced(function* ({ key: named, user }) {
    const [registry, prefix] = yield* flags.keyIn(named)
    const { userRules } = yield* registry.showKey(prefix)
    const stored = user === undefined ? undefined : (yield* registry.endUsers(prefix, user)).stored
    for (const rule of userRules)
      if (stored === undefined || rule.name === stored)
        yield* Console.log(jsonText({ type: "rule", ...rule }))
    yield* registry.exportUser(prefix, user, (lines) =>
      Effect.forEach(lines, (line) => Console.log(jsonText(line)), { discard: true })
    )
  })
).pipe(
  described(
    "Print all that is stored of one end user of a key, or of the key itself, as lines of JSON",
    "tollgate export-user --key webui --user ada@example.com > ada.jsonl",
    "tollgate export-user --key anna > anna.jsonl"
  )
)

export const eraseUser = Command.make(
  "erase-user",
  {
    key: flags.key("key"),
    user: flags.optional(flags.endUser.user),
    yes: flags.toggle("yes", "Also all requests of the key, or a user that none of them has named")
  },
  Effect.fnUntraced(function* ({ key: named, user, yes }) {
    const [registry, prefix] = yield* flags.keyIn(named)
    if (!yes)
      yield* user === undefined
        ? mustBe("yes", `given too, because without --user all requests of ${prefix} are erased`)
        : flags.userOf(prefix, user)
    const erased = yield* registry.eraseUser(prefix, user)
    const { prompts, requests } = erased
    yield* show(
      { key: prefix, ...erased },
      `${counted(requests, "row")} of the audit got a pseudonym, and ${counted(prompts, "prompt")} went`
    )
    yield* notesAsText([
      "Sums did not change. Backups and logs elsewhere have what was erased until they end."
    ])
  })
).pipe(
  described(
    "Replace the name of one end user of a key, or of all of them, by pseudonyms, and delete the prompts. Needs the owner of the schema, as migrate does",
    "tollgate erase-user --key webui --user ada@example.com",
    ["tollgate erase-user --key anna --yes", "All requests of a key"]
  )
)
