/** Accounts whose counters may differ from the ledger: they are compared as soon as they rest. */
import { Context } from "effect"
import type { Account } from "../domain/Reservation.ts"

/** Told by whoever ends the request of another process, or corrects one; `layerDrift` compares. */
export class SuspectAccounts extends Context.Service<
  SuspectAccounts,
  { readonly add: (account: Account) => void }
>()("tollgate/ledger/SuspectAccounts") {}
