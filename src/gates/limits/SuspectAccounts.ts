/** Accounts whose counters may differ from the ledger. They are compared as soon as they are idle. */
import { Context } from "effect"
import type { Account } from "../../domain/Reservation.ts"

/** Code that ends or corrects a request of another process adds its account. `CounterReconciler.ts` compares it. */
export class SuspectAccounts extends Context.Service<
  SuspectAccounts,
  { readonly add: (account: Account) => void }
>()("tollgate/ledger/SuspectAccounts") {}
