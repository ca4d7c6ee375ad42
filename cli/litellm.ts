/**
 * The keys of LiteLLM as a table for `create-keys`: a page of what `GET /key/list?return_full_object=true` answers (LiteLLM 1.95).
 * LiteLLM has hashes of its keys only, so the keys are new.
 */
import { Effect, Schema } from "effect"
import { ofPeriod } from "../src/domain/Errors.ts"

const text = Schema.optionalKey(Schema.NullOr(Schema.String))
const number = Schema.optionalKey(Schema.NullOr(Schema.Finite))

const Key = Schema.Struct({
  key_alias: text,
  key_name: text,
  models: Schema.optionalKey(Schema.NullOr(Schema.Array(Schema.String))),
  rpm_limit: number,
  tpm_limit: number,
  max_parallel_requests: number,
  /** dollars */
  max_budget: number,
  budget_duration: text,
  expires: text,
  blocked: Schema.optionalKey(Schema.NullOr(Schema.Boolean)),
  user_id: text
})
type Key = typeof Key.Type

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Key) })))

/** The options of budgets, and how LiteLLM writes how often one begins anew. */
const budgets: ReadonlyArray<string> = Object.values(ofPeriod)
const durations: Readonly<Record<string, RegExp>> = {
  total: /^$/,
  daily: /^(?:daily|1d|24h)$/,
  weekly: /^(?:weekly|7d|1w)$/,
  monthly: /^(?:monthly|30d|1mo)$/
}

/** `ollama/llama3.2:3b` is a model of a provider; these words are none. */
const modelsOf = ({ models }: Key): string =>
  (models ?? [])
    .filter((name) => !["all-proxy-models", "all-team-models"].includes(name))
    .map((name) => name.replace(/^ollama(?:_chat)?\//, ""))
    .join(",")

const nameOf = ({ key_alias, key_name }: Key): string => key_alias ?? key_name ?? ""

/** Fails with what is wrong. `tokensPerDollar`: what a dollar of a budget becomes */
export const litellmTable = Effect.fnUntraced(function* (json: string, tokensPerDollar: number | undefined) {
  const read = yield* Effect.mapError(
    decode(json),
    () => "it is no list of keys as LiteLLM answers GET /key/list?return_full_object=true"
  )
  const keys = read.keys.filter(({ blocked }) => blocked !== true)
  const budgetOf = ({ budget_duration, max_budget }: Key, budget: string) =>
    typeof max_budget === "number" && durations[budget]?.test(budget_duration ?? "") === true
      ? Math.round(max_budget * (tokensPerDollar ?? Number.NaN))
      : undefined
  for (const key of keys.filter(({ max_budget }) => typeof max_budget === "number")) {
    const of = `${JSON.stringify(nameOf(key))} has a budget`
    if (tokensPerDollar === undefined)
      return yield* Effect.fail(`${of} in dollars: give --tokens-per-dollar too`)
    if (budgets.every((budget) => budgetOf(key, budget) === undefined))
      return yield* Effect.fail(`${of} for ${key.budget_duration}, which is none of ${budgets.join(", ")}`)
  }
  const columns: Readonly<Record<string, (key: Key) => number | string | null | undefined>> = {
    name: nameOf,
    rpm: ({ rpm_limit }) => rpm_limit,
    tpm: ({ tpm_limit }) => tpm_limit,
    concurrent: ({ max_parallel_requests }) => max_parallel_requests,
    ...Object.fromEntries(budgets.map((budget) => [budget, (key: Key) => budgetOf(key, budget)])),
    models: modelsOf,
    // Microseconds, and no zone where it is UTC.
    "expires-at": ({ expires }) =>
      expires?.replace(/(?<=\.\d{3})\d+/, "").replace(/(?<!Z|[+-]\d\d:\d\d)$/, "Z"),
    user_id: ({ user_id }) => user_id
  }
  const rows = keys.map((key) => Object.values(columns).map((cell) => String(cell(key) ?? "")))
  return [Object.keys(columns), ...rows]
})
