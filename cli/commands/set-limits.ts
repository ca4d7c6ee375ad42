import { Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { limit } from "../../src/admin/Values.ts"
import * as flags from "../flags.ts"
import { limitTable } from "../tables.ts"
import { show } from "../terminal.ts"

const notNull = (field: string, value: number | null | undefined) =>
  value === null ? Effect.fail(new InvalidValue({ field, expected: limit.expected })) : Effect.succeed(value)

export const setLimits = Command.make(
  "set-limits",
  {
    tenant: Flag.optional(flags.tenant),
    key: Flag.optional(flags.prefix("key")),
    rpm: flags.amountOrNone("rpm", "Requests per minute"),
    tpm: flags.amountOrNone("tpm", "Tokens per minute"),
    concurrent: flags.amountOrNone("concurrent", "Requests at the same time"),
    weight: Flag.Int("weight").pipe(
      Flag.withDescription("Share of the model server while requests wait for it; for tenants only"),
      Flag.withMetavar("n"),
      Flag.optional
    ),
    priority: flags.priority
  },
  Effect.fnUntraced(function* (given) {
    const registry = yield* Registry
    const rpm = yield* flags.readAmountOrNone("rpm", given.rpm, limit.expected)
    const tpm = yield* flags.readAmountOrNone("tpm", given.tpm, limit.expected)
    const concurrent = yield* flags.readAmountOrNone("concurrent", given.concurrent, limit.expected)
    const weight = Option.getOrUndefined(given.weight)
    const priority = Option.getOrUndefined(given.priority)
    if ([rpm, tpm, concurrent, weight, priority].every((value) => value === undefined)) {
      return yield* new InvalidValue({
        field: "rpm",
        expected: "given, or --tpm, --concurrent, --weight or --priority"
      })
    }
    if (Option.isSome(given.tenant) === Option.isSome(given.key)) {
      return yield* new InvalidValue({ field: "tenant", expected: "given, or --key, but not both" })
    }
    if (Option.isSome(given.key) && weight !== undefined) {
      return yield* new InvalidValue({ field: "weight", expected: "given with --tenant, not with --key" })
    }
    if (Option.isSome(given.tenant) && priority !== undefined) {
      return yield* new InvalidValue({ field: "priority", expected: "given with --key, not with --tenant" })
    }
    const changed = Option.isSome(given.key)
      ? yield* registry.setKeyLimits(given.key.value, {
          ...flags.givenLimits({ rpm, tpm, concurrent }),
          ...(priority === undefined ? {} : { priority })
        })
      : yield* registry.setTenantLimits(
          Option.getOrElse(given.tenant, () => ""),
          // A tenant inherits no limits, so it needs a number.
          {
            ...flags.givenLimits({
              rpm: yield* notNull("rpm", rpm),
              tpm: yield* notNull("tpm", tpm),
              concurrent: yield* notNull("concurrent", concurrent)
            }),
            ...(weight === undefined ? {} : { weight })
          }
        )
    yield* show(changed, limitTable(changed))
  })
).pipe(
  Command.withDescription("Set the limits of a tenant or of one key; other limits do not change"),
  Command.withExamples([
    { command: "tollgate set-limits --tenant acme --rpm 300 --concurrent 16" },
    { command: "tollgate set-limits --tenant acme --weight 3" },
    { command: "tollgate set-limits --key tg_4fJ2kQ9sX --priority batch" },
    {
      command: "tollgate set-limits --key tg_4fJ2kQ9sX --tpm none",
      description: "Use the tenant's limit again"
    }
  ])
)
