import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { TestPostgres } from "../../support/TestPostgres.ts"

const planOf = (statement: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const lines = yield* sql<{ readonly "QUERY PLAN": string }>`EXPLAIN ${sql.literal(statement)}`
    return lines.map((line) => line["QUERY PLAN"]).join("\n")
  })

it.live("when a table is empty now, then its statements are planned as for a large one", () =>
  Effect.gen(function* () {
    const plan = yield* planOf(
      "SELECT * FROM audit_log WHERE request_id = '00000000-0000-0000-0000-000000000000'"
    )
    assert.match(plan, /audit_log_old_pkey/)
    assert.notMatch(plan, /Seq Scan/)
  }).pipe(Effect.provide(TestPostgres))
)

it.live("when a plan without an index is expensive, then it is still not compiled", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`SET jit_above_cost = 0`
    assert.notMatch(yield* planOf("SELECT count(*) FROM audit_log WHERE latency_ms > 1"), /JIT/)
    assert.deepStrictEqual(yield* sql`SHOW jit`, [{ jit: "off" }])
  }).pipe(Effect.provide(TestPostgres))
)
