/** Accounts whose counters may be off are compared with the ledger as soon as they rest, not when their turn comes. */
import { Context } from "effect"
import type { Account } from "../gates/Meter/Meter.ts"

/** Told by whoever ends the request of another process. Without `layerDrift` nobody compares anything. */
export const Doubts = Context.Reference<{ readonly about: (account: Account) => void }>(
  "tollgate/audit/Doubts",
  {
    defaultValue: () => ({ about: () => undefined })
  }
)
