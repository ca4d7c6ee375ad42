/** What a warning of a budget says: a sentence, which Slack and Teams show, and the facts in flat fields, for templates of other receivers. */
import { Schema } from "effect"
import type { Calendar } from "../domain/Calendar.ts"
import { ofPeriod } from "../domain/Errors.ts"
import { periods } from "../domain/Limits.ts"

const nullable = Schema.NullOr(Schema.String)

export const BudgetWarning = Schema.Struct({
  id: Schema.String,
  scope: Schema.Literals(["key", "tenant", "user", "model"]),
  tenant: Schema.String,
  /** null: the budget of a tenant */
  key: nullable,
  prefix: nullable,
  /** as the audit stores the name; null also for requests without a name */
  user: nullable,
  /** without `:latest`; null: the budget is for all models */
  model: nullable,
  period: Schema.Literals(periods),
  budget: Schema.Finite,
  used: Schema.Finite,
  /** epoch ms */
  at: Schema.Finite,
  /** the first day of the next period; null: there is none */
  ends: nullable
})
export type BudgetWarning = typeof BudgetWarning.Type

const amount = (tokens: number): string => tokens.toLocaleString("en-US")

export const messageOf = ({ at, ends, ...fields }: BudgetWarning, { instantOf, textOf }: Calendar) => {
  const { budget, key, model, period, prefix, scope, tenant, used, user } = fields
  // ISO 8601, with the offset of the zone
  const timeOf = (instant: number): string =>
    textOf(instant, "second").replace(" UTC", "Z").replace(" ", "T").replace(" ", "")
  const end = ends === null ? undefined : instantOf(ends)
  const percent = Math.floor((used * 100) / budget)
  const ofKey = `key ${key} (${prefix}) of tenant ${tenant}`
  // A client chooses the name of an end user, and chats read mentions and links.
  const ofUser = `end user ${(user ?? "without a name").replaceAll(/[&<>[\]]/g, " ")} of ${ofKey}`
  const who = { tenant: `tenant ${tenant}`, key: ofKey, user: ofUser, model: ofKey }[scope]
  const of = model === null ? "" : ` for ${model}`
  const then = percent < 100 ? `${amount(budget - used)} are left` : `its requests${of} are refused`
  const until = end === undefined ? "" : ` until ${textOf(end)}`
  return {
    text: `Tollgate: ${who} has used ${percent} % of its ${ofPeriod[period]} budget${of} (${amount(used)} of ${amount(budget)} tokens): ${then}${until}.`,
    kind: percent < 100 ? "budget_nearly_spent" : "budget_spent",
    ...fields,
    percent,
    at: timeOf(at),
    resets_at: end === undefined ? null : timeOf(end)
  }
}
