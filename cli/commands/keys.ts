/** The commands that create, show, rotate, revoke and disable keys. */
import { Effect, Option, Stdio, Stream } from "effect"
import { Command, Flag } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import * as Values from "../../src/admin/Values.ts"
import type { Deadline } from "../../src/admin/period.ts"
import { keyStatuses } from "../../src/admin/rows.ts"
import { scopes } from "../../src/domain/Caller.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { keyFacts, keyHints, keyOverviewTable, keyTable } from "../tables.ts"
import { inForce, stopRequests } from "../gateways.ts"
import { counted, escapeText, notes, noteAsText, notesAsText, show, showList } from "../terminal.ts"
import { times } from "../zone.ts"

/** A key that cannot work yet surprises its user. */
const showHints = Effect.fnUntraced(function* (prefix: string) {
  const registry = yield* Needs.registry
  yield* notesAsText(keyHints(yield* registry.showKey(prefix)))
})

/** The options of new keys. */
export const keyCreation = {
  scopes: flags.text("scopes", "list", "What the key may do").pipe(Flag.withDefault(scopes.join(","))),
  expiresInMs: flags.optional(flags.lifetime("expires-in", "Lifetime from now: 45m, 12h, 30d, 2w")),
  expiresAt: flags.optional(
    flags.deadline("expires-at", "End of life: the end of 2027-01-31, or 2027-01-31T12:00")
  ),
  attributes: flags.creationFlags("key")
}

/** What these options say of a key. */
export const newKeyOf = Effect.fnUntraced(function* ({
  expiresAt,
  expiresInMs,
  scopes,
  attributes
}: {
  readonly scopes: string
  readonly expiresInMs: number | undefined
  readonly expiresAt: Deadline | undefined
  readonly attributes: flags.GivenAttributes
}) {
  return {
    expiresAt,
    expiresInMs,
    scopes: flags.commaList(scopes),
    ...(yield* Values.keyChange(attributes))
  }
})

export const createKey = Command.make(
  "create-key",
  {
    tenant: flags.tenant,
    name: Flag.String("name").pipe(Flag.withDescription("Label of the key")),
    allowDuplicate: flags.toggle("allow-duplicate", "Also when the tenant has a live key of that name"),
    ...keyCreation
  },
  Effect.fnUntraced(function* ({ allowDuplicate, name, tenant, ...given }) {
    const registry = yield* Needs.registry
    const { key, secret } = yield* registry.createKey({
      tenant,
      name,
      allowDuplicate,
      ...(yield* newKeyOf(given))
    })
    const expiry = key.expires === null ? "never expires" : `expires ${(yield* times)(key.expires, "end")}`
    yield* noteAsText(
      `Key ${key.prefix} for tenant ${key.tenant} (${key.scopes.join(", ")}; ${expiry}). It is shown this once:`
    )
    yield* show({ secret, ...key }, secret)
    yield* showHints(key.prefix)
  })
).pipe(
  described(
    "Create a key and print it once, alone on a line of stdout",
    "tollgate create-key --tenant acme --name laptop",
    "tollgate create-key --tenant acme --name rag --scopes embeddings",
    "tollgate create-key --tenant acme --name ci --expires-in 30d",
    ["KEY=$(tollgate create-key --tenant acme --name ci)", "Only the key"]
  )
)

export const rotateKey = Command.make(
  "rotate-key",
  {
    key: flags.key("prefix"),
    graceMs: flags.optional(
      flags.lifetime(
        "grace",
        "How long the old key still works: 45m, 12h, 30d, 2w; default: until it is revoked"
      )
    )
  },
  Effect.fnUntraced(function* ({ graceMs, key: named }) {
    const [registry, prefix] = yield* flags.keyIn(named)
    const { key, replaced, secret } = yield* registry.rotateKey(prefix, graceMs)
    const end =
      replaced.status !== "active"
        ? `is ${replaced.status}`
        : replaced.expires === null
          ? "works until it is revoked"
          : `works until ${(yield* times)(replaced.expires, "end")}`
    yield* noteAsText(
      `Key ${key.prefix} takes the place of ${replaced.prefix}, which ${end}. It is shown this once:`
    )
    yield* show({ secret, ...key, replaced }, secret)
    if (graceMs !== undefined) yield* inForce(replaced.prefix)
    yield* showHints(key.prefix)
  })
).pipe(
  described(
    "Create a key with the scopes, limits, budgets and lifetime of another key, and print it once",
    ["tollgate rotate-key --prefix tg_4fJ2kQ9sX --grace 7d", "The old key ends by itself"],
    ["KEY=$(tollgate rotate-key --prefix tg_4fJ2kQ9sX)", "Revoke the old key later"]
  )
)

export const listKeys = Command.make(
  "list-keys",
  {
    tenant: flags.owner.tenant,
    name: flags.optionalText("name", "text", "Only keys whose names contain this text"),
    status: flags.optional(
      Flag.Literals("status", keyStatuses).pipe(Flag.withDescription("Only keys with this status"))
    ),
    expiringMs: flags.optional(flags.lifetime("expiring", "Only keys that end within 12h, 30d, 2w"))
  },
  Effect.fnUntraced(function* ({ tenant, ...filter }) {
    const registry = yield* Needs.registry
    yield* showList(yield* registry.listKeys(tenant, filter), "no keys", keyOverviewTable)
  })
).pipe(
  described(
    "List the keys of a tenant, or of all tenants, by name; secrets are never shown",
    "tollgate list-keys",
    "tollgate list-keys --tenant acme --name anna",
    ["tollgate list-keys --expiring 30d", "Whose keys end this month?"]
  )
)

/** The prefix of the key on the first line of stdin. The rest is forgotten. */
const fromStdin = Effect.gen(function* () {
  const { stdin } = yield* Stdio.Stdio
  const line = stdin.pipe(Stream.decodeText(), Stream.splitLines, Stream.runHead, Effect.option)
  return yield* Effect.mapError(
    Effect.fromOption(Option.flatMap(Option.flatten(yield* line), (found) => flags.readPrefix(found.trim()))),
    () => mustBe("key-from-stdin", "given with one key on stdin")
  )
})

export const showKey = Command.make(
  "show-key",
  {
    key: flags.optional(flags.key("prefix")),
    keyFromStdin: flags.toggle("key-from-stdin", "Read a whole key from stdin, so that it is in no history")
  },
  Effect.fnUntraced(function* ({ key: named, keyFromStdin }) {
    const registry = yield* Needs.registry
    if ((named !== undefined) === keyFromStdin) {
      return yield* mustBe("prefix", "given, or --key-from-stdin, but not both")
    }
    const key = yield* registry.showKey(named === undefined ? yield* fromStdin : yield* flags.keyOf(named))
    yield* show(key, keyFacts(key))
    yield* notes(keyHints(key))
  })
).pipe(
  described(
    "Show one key: tenant, limits, budgets, last use, and why it may not work",
    "tollgate show-key --prefix tg_4fJ2kQ9sX",
    ["tollgate show-key --key-from-stdin < key.txt", "Whose key is this?"]
  )
)

const stopRunning = flags.toggle("stop-running", "Also end the requests of the key that run and wait")

/** Waits until no gateway takes the key any more, and ends what is open when that is asked. */
const endKey = Effect.fnUntraced(function* (prefix: string, stopRunning: boolean) {
  const open = yield* inForce(prefix)
  const left = open > 0 && stopRunning ? yield* stopRequests(prefix) : open
  if (open > left) yield* noteAsText(`${counted(open - left, "request")} of the key ended with an error.`)
  if (left > 0)
    yield* noteAsText(
      `${counted(left, "request")} of the key ${left === 1 ? "goes" : "go"} on${stopRunning ? "" : "; --stop-running ends them"}.`
    )
  return { stopped: open - left, running: left }
})

export const revokeKey = Command.make(
  "revoke-key",
  { key: flags.key("prefix"), stopRunning },
  Effect.fnUntraced(function* ({ key, stopRunning }) {
    const [registry, prefix] = yield* flags.keyIn(key)
    const { already } = yield* registry.revokeKey(prefix)
    const { lastUsed, name, tenant } = yield* registry.showKey(prefix)
    const whose = `${escapeText(name)} of ${escapeText(tenant)}, ${lastUsed === null ? "never used" : `last used ${(yield* times)(lastUsed)}`}`
    const requests = yield* endKey(prefix, stopRunning)
    yield* show(
      { prefix, status: "revoked", already, name, tenant, lastUsed, requests },
      already ? `${prefix} was already revoked (${whose})` : `${prefix} is revoked (${whose})`
    )
  })
).pipe(
  described(
    "Revoke a key for ever, and wait until no replica takes it",
    "tollgate revoke-key --prefix tg_4fJ2kQ9sX",
    ["tollgate revoke-key --key anna --stop-running", "Also end what runs with it now"]
  )
)

export const moveKey = Command.make(
  "move-key",
  { key: flags.key("key"), tenant: flags.text("tenant", "name", "The tenant that gets the key") },
  Effect.fnUntraced(function* ({ key, tenant }) {
    const [registry, prefix] = yield* flags.keyIn(key)
    const moved = yield* registry.moveKey(prefix, tenant)
    yield* show(
      moved,
      moved.length === 0 ? `${prefix} is a key of ${escapeText(tenant)} already` : keyTable(moved)
    )
    if (moved.length > 0) {
      const what = moved.length === 1 ? "The key is" : `${moved.length} keys with one account are`
      yield* notesAsText([
        `${what} of ${escapeText(tenant)} now. What was used until now stays with the old tenant.`
      ])
      yield* inForce(null)
    }
    yield* showHints(prefix)
  })
).pipe(
  described(
    "Give a key to another tenant, with the keys that share its account. What it used stays with the old tenant",
    "tollgate move-key --key tg_4fJ2kQ9sX --tenant research"
  )
)

export const disableKey = Command.make(
  "disable-key",
  { key: flags.key("prefix"), stopRunning },
  Effect.fnUntraced(function* ({ key: named, stopRunning }) {
    const registry = yield* Needs.registry
    const key = yield* registry.setKeyEnabled(yield* flags.keyOf(named), false)
    const requests = yield* endKey(key.prefix, stopRunning)
    yield* show({ ...key, requests }, keyTable([key]))
  })
).pipe(
  described(
    "Disable a key until it is enabled again, and wait until no replica takes it",
    "tollgate disable-key --key anna",
    ["tollgate disable-key --key anna --stop-running", "Also end what runs with it now"]
  )
)

export const enableKey = Command.make(
  "enable-key",
  { key: flags.key("prefix") },
  Effect.fnUntraced(function* ({ key: named }) {
    const registry = yield* Needs.registry
    const key = yield* registry.setKeyEnabled(yield* flags.keyOf(named), true)
    yield* show(key, keyTable([key]))
    yield* inForce(key.prefix)
    yield* showHints(key.prefix)
  })
).pipe(described("Enable a disabled key", "tollgate enable-key --key anna"))
