import { Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { periods } from "../../src/domain/Limits.ts"
import { Registry } from "../../src/admin/Registry.ts"
import * as flags from "../flags.ts"
import { amount, show, table } from "../terminal.ts"

export const showUsage = Command.make(
  "show-usage",
  {
    tenant: flags.tenant,
    period: Flag.Literals("period", periods).pipe(
      Flag.withDescription("The current UTC day or month, or everything"),
      Flag.withDefault("day")
    )
  },
  Effect.fnUntraced(function* ({ period, tenant }) {
    const registry = yield* Registry
    const used = yield* registry.usage(tenant, period)
    yield* show(
      {
        tenant,
        period,
        requests: used.requests,
        tokens_in: used.tokensIn,
        tokens_out: used.tokensOut
      },
      table(
        ["TENANT", "PERIOD", "REQUESTS", "TOKENS_IN", "TOKENS_OUT"],
        [[tenant, period, amount(used.requests), amount(used.tokensIn), amount(used.tokensOut)]]
      )
    )
  })
).pipe(
  Command.withDescription("Show what a tenant used, from the ledger"),
  Command.withExamples([{ command: "tollgate show-usage --tenant acme --period month" }])
)
