/** A gateway with its counters to look at, and what its answers tell of limits and budgets. */
import { Effect, Layer } from "effect"
import { layerRedis as layerRedisMeter } from "../../../src/gates/meter/redis/RedisMeter.ts"
import { type Behaviour, fake } from "../../support/FakeBackend.ts"
import { layerGateway } from "../../support/Gateway.ts"
import { sql } from "../../support/sql.ts"
import { layerPatientRedis, TestRedis } from "../../support/TestRedis.ts"

export const World = layerRedisMeter({ leaseS: 30 }).pipe(
  Layer.provideMerge(Layer.unwrap(Effect.map(TestRedis, ({ url }) => layerPatientRedis(url)))),
  Layer.provideMerge(layerGateway())
)

/** An answer that the backend counts as so many tokens, half of them for the prompt. */
export const answerOf = (tokens: number): Behaviour => ({
  does: "stream",
  lines: [fake.chat("Hi"), fake.done("chat", { prompt_eval_count: tokens / 2, eval_count: tokens / 2 })]
})

interface Answered {
  readonly headers: Headers
  readonly text: string
}

/** Scope, period, limit and rest of the budget that an answer tells of. */
export const budgetOf = ({ headers }: Pick<Answered, "headers">) =>
  ["scope", "period", "tokens-limit", "tokens-remaining"].map((name) => headers.get(`x-budget-${name}`))

export const messageOf = ({ text }: Pick<Answered, "text">): string => JSON.parse(text).error.message

/** The account of a key. */
export const accountOf = (prefix: string) =>
  Effect.map(
    sql<{ key: string; group: string }>`
      SELECT id::text AS key, tenant_id::text AS group FROM api_keys WHERE prefix = ${prefix}`,
    ([{ group, key } = { group: "", key: "" }]) => ({ group, key })
  )
