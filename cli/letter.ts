/** The text that a person gets with a key. */
import { Result } from "effect"
import type { KeyOverview } from "../src/admin/Registry.ts"
import { amount, minute } from "./terminal.ts"

export interface LetterFacts {
  readonly key: KeyOverview
  readonly secret: string
  /** where people reach the gateway, without a slash at its end */
  readonly address: string
  /** names that the person may ask for */
  readonly models: ReadonlyArray<string>
}

const standard = `Hello {{name}},

this is your key for the language models at {{address}}.

Key:      {{key}}
          Keep it secret: it is yours alone, and what it uses is counted as yours.
Expires:  {{expires}}
Models:   {{models}}
Limits:   {{limits}}

Your first request:

{{first_request}}

In programs that speak OpenAI's protocol:

  base URL  {{address}}/v1
  API key   the key above

When something fails, say which request it was: the answer has its id in the header X-Request-ID.
`

const limitsOf = ({ budgets, effective }: KeyOverview): string =>
  [
    `${amount(effective.rpm)} requests and ${amount(effective.tpm)} tokens a minute`,
    `${amount(effective.concurrent)} requests at a time`,
    ...budgets.map(
      ({ budget, period }) =>
        `${amount(budget)} tokens ${period === "total" ? "in all" : `a ${period} (UTC)`}`
    )
  ].join(", ")

const firstRequest = ({ address, key, models: [model = "MODEL"], secret }: LetterFacts): string => {
  const [path, body] = key.scopes.includes("chat")
    ? ["chat/completions", { model, messages: [{ role: "user", content: "Hello" }] }]
    : ["embeddings", { model, input: "Hello" }]
  return [
    `  curl ${address}/v1/${path} \\`,
    `    -H "Authorization: Bearer ${secret}" \\`,
    `    -H "Content-Type: application/json" \\`,
    `    -d '${JSON.stringify(body)}'`
  ].join("\n")
}

/** What a template may name, in two braces. */
const places: Readonly<Record<string, (facts: LetterFacts) => string>> = {
  name: ({ key }) => key.name,
  tenant: ({ key }) => key.tenant,
  address: ({ address }) => address,
  key: ({ secret }) => secret,
  prefix: ({ key }) => key.prefix,
  expires: ({ key }) => (key.expires === null ? "never" : `${minute(key.expires)} UTC`),
  models: ({ models }) => (models.length === 0 ? "none yet" : models.join(", ")),
  limits: ({ key }) => limitsOf(key),
  first_request: firstRequest
}

export const placeNames = Object.keys(places)

const place = /\{\{([^{}]*)\}\}/g

/** Fails with the name of a place that does not exist. */
export const readTemplate = (text = standard): Result.Result<(facts: LetterFacts) => string, string> => {
  const unknown = [...text.matchAll(place)]
    .map(([, name = ""]) => name.trim())
    .find((name) => !placeNames.includes(name))
  return unknown === undefined
    ? Result.succeed((facts) =>
        text.replaceAll(place, (_, name: string) => places[name.trim()]?.(facts) ?? "")
      )
    : Result.fail(unknown)
}
