/** Why a request was refused, as the audit stores it for operators (`detail`). Clients never see it. `cli/why.ts` explains it. */
import { Match } from "effect"
import type { GatewayError } from "./Errors.ts"

/** Length of the column. */
export const maxRefusal = 256

export const limitWords = {
  requests: "requests a minute",
  tokens: "tokens a minute",
  concurrency: "requests at a time",
  users: "users at a time"
} as const

const modelHint = "not one of this key's models; GET /v1/models lists them"

/** What the client is told in `X-Hint`, because the body says nothing. Of models it is one sentence, whether they are there or not. */
export const hintOf = (error: GatewayError): string | undefined => {
  if (error._tag !== "Forbidden" || error.what === "scope") return undefined
  return error.what === "path" ? error.hint : modelHint
}

export const refusalOf: (error: GatewayError) => string = Match.type<GatewayError>().pipe(
  Match.tagsExhaustive({
    // What the client is told: a field of its request, and what is expected there.
    BadRequest: ({ detail }) => `request: ${detail}`,
    Unauthorized: ({ ended }) =>
      ended === undefined ? "key: none that is known" : `key: ${ended} is not in force`,
    Forbidden: ({ hint, what }) => (hint === undefined ? what : `${what}: ${hint}`),
    PayloadTooLarge: ({ limitBytes }) => `body: more than ${limitBytes} bytes`,
    RateLimited: ({ limit, scope = "key", value }) => `limit: ${value} ${limitWords[limit]}, ${scope}`,
    FreeWorkExhausted: ({ value }) => `limit: ${value} lists and refused requests a second, key`,
    BudgetExhausted: ({ isSpent, period, scope, value }) =>
      `budget: ${value} tokens, ${period}, ${scope}${isSpent ? "" : ", held"}`,
    CapacityExceeded: () => "queue: no place in time",
    CircuitOpen: () => "model server: circuit open",
    BackendFailed: ({ fault }) => `model server: ${fault}`,
    Unavailable: ({ crowded, gate }) => `gate: ${gate}${crowded === true ? ", crowded" : ""}`,
    ShuttingDown: () => "gateway: shutting down"
  })
)
