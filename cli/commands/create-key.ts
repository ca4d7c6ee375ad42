import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { scopes } from "../../src/domain/Caller.ts"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { readInstant, readLifetime } from "../lifetime.ts"
import { keyHints } from "../tables.ts"
import { minute, noteAsText, show } from "../terminal.ts"

export const createKey = Command.make(
  "create-key",
  {
    tenant: flags.tenant,
    name: Flag.String("name").pipe(Flag.withDescription("Label of the key")),
    scopes: Flag.String("scopes").pipe(
      Flag.withDescription("What the key may do"),
      Flag.withMetavar("list"),
      Flag.withDefault(scopes.join(","))
    ),
    expiresIn: Flag.String("expires-in").pipe(
      Flag.withDescription("Lifetime from now: 45m, 12h, 30d, 2w"),
      Flag.withMetavar("time"),
      Flag.optional
    ),
    expiresAt: Flag.String("expires-at").pipe(
      Flag.withDescription("End of life: 2027-01-31 or 2027-01-31T12:00:00Z"),
      Flag.withMetavar("when"),
      Flag.optional
    ),
    ...flags.limits,
    priority: flags.priority,
    endUserHeader: Flag.String("end-user-header").pipe(
      Flag.withDescription(
        "Header with the end user of a request, such as X-OpenWebUI-User-Email; stored in the audit"
      ),
      Flag.withMetavar("name"),
      Flag.optional
    )
  },
  Effect.fnUntraced(function* (given) {
    const registry = yield* Registry
    const { key, secret } = yield* registry.createKey({
      tenant: given.tenant,
      name: given.name,
      scopes: flags.commaList(given.scopes),
      ...(Option.isSome(given.expiresIn) ? { expiresInMs: yield* readLifetime(given.expiresIn.value) } : {}),
      ...(Option.isSome(given.expiresAt) ? { expiresAt: yield* readInstant(given.expiresAt.value) } : {}),
      ...(Option.isSome(given.priority) ? { priority: given.priority.value } : {}),
      ...(Option.isSome(given.endUserHeader) ? { endUserHeader: given.endUserHeader.value } : {}),
      ...flags.givenLimits({
        rpm: Option.getOrUndefined(given.rpm),
        tpm: Option.getOrUndefined(given.tpm),
        concurrent: Option.getOrUndefined(given.concurrent)
      })
    })
    const expiry = key.expires === null ? "never expires" : `expires ${minute(key.expires)} UTC`
    yield* noteAsText(
      `Key ${key.prefix} for tenant ${key.tenant} (${key.scopes.join(", ")}; ${expiry}). It is shown this once:`
    )
    yield* show({ secret, ...key }, secret)
    // A new key that cannot work yet surprises its user.
    for (const hint of keyHints(yield* registry.showKey(key.prefix))) yield* noteAsText(hint)
  })
).pipe(
  Command.withDescription("Create a key and print it once, alone on a line of stdout"),
  Command.withExamples([
    { command: "tollgate create-key --tenant acme --name laptop" },
    { command: "tollgate create-key --tenant acme --name rag --scopes embeddings" },
    { command: "tollgate create-key --tenant acme --name ci --expires-in 30d" },
    { command: "KEY=$(tollgate create-key --tenant acme --name ci)", description: "Only the key" }
  ])
)
