/** The invariants can fail: each is broken here once, and the checker says which. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { Registry } from "../../src/admin/Registry.ts"
import type { Answer } from "../support/invariants/Witness.ts"
import { bookProblems, rowProblems } from "../support/invariants.ts"
import { call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { layerPatientRedis, TestRedis } from "../support/TestRedis.ts"

const id = "01a1fd71-53a6-7151-a425-e17303635cb9"
const secret = `tg_${"Aa1".repeat(13)}zz`
const known = { secrets: [secret], addresses: ["127.0.0.1:11434"] }

const answer = (
  more: Partial<Answer> & { readonly headers_?: Readonly<Record<string, string>> } = {}
): Answer => {
  const headers = new Map(
    Object.entries(more.headers_ ?? { "x-request-id": id, "content-type": "application/json" })
  )
  return {
    status: 503,
    headers,
    body: JSON.stringify({ error: { message: "m", type: "t", code: 503 }, request_id: id }),
    bodiless: false,
    request: { method: "POST", target: "/api/chat", raw: false },
    ...more
  }
}

const meter = Layer.unwrap(
  Effect.map(TestRedis, ({ url }) =>
    layerRedisMeter({ leaseS: 30 }).pipe(Layer.provide(layerPatientRedis(url)))
  )
)

layer(Layer.provideMerge(meter, layerGateway()), { excludeTestServices: true })(
  "a gateway whose books are tampered with",
  (it) => {
    const problems = Effect.map(bookProblems, (found) => found.join("\n"))

    it.effect(
      "when audit, ledger, counters or usage disagree, then the checker says so, and stops when they agree again",
      () =>
        Effect.gen(function* () {
          const [sql, registry] = [yield* SqlClient.SqlClient, yield* Registry]
          const { prefix, secret, tenant } = yield* newKey()
          yield* registry.setBudgets(prefix, { total: 1000 })
          const { headers } = yield* eventually(
            call("/api/chat", { secret, body: hello({ stream: false }) }),
            ({ status }) => status === 200
          )
          yield* call("/api/chat", { secret, body: hello({ stream: false }) })
          assert.strictEqual(yield* eventually(problems, (found) => found === ""), "")
          yield* sql`UPDATE ledger SET tokens_out = tokens_out + 5`
          const found = yield* problems
          assert.match(found, /audit \d+, ledger \d+, counters \d+ tokens/)
          assert.include(found, `usage of ${tenant}, day: shown`)
          yield* sql`UPDATE ledger SET tokens_out = tokens_out - 5`
          assert.strictEqual(yield* problems, "")
          // The counters alone.
          const [key] = yield* sql<{ key_id: string; tenant_id: string }>`
          SELECT key_id::text, tenant_id::text FROM ledger`
          const account = { group: key?.tenant_id ?? "", key: key?.key_id ?? "" }
          const { reserve, cancel } = yield* Meter
          const claims = {
            account,
            limits: { rpm: 1000, tpm: 100_000, concurrent: 10 },
            budgets: { total: 1000 }
          }
          yield* reserve(claims, { id: "left", tokens: 20, slot: true })
          assert.match(yield* problems, /counters[^]*1 slots or holds and 0 intents are open/)
          yield* cancel({ id: "left", claims })
          assert.strictEqual(yield* problems, "")
          // A row that is gone, one that says something else, and one that says too much.
          const seen = answer({
            status: 200,
            headers_: { "x-request-id": headers.get("x-request-id") ?? "" }
          })
          assert.deepStrictEqual(yield* rowProblems([seen], known), [])
          assert.match((yield* rowProblems([answer()], known)).join(), /no audit row: 503 POST/)
          assert.match(
            (yield* rowProblems([{ ...seen, status: 503 }], known)).join(),
            /200 in the audit row: 503/
          )
          const named = { secrets: [], addresses: ["m:latest"] }
          assert.match((yield* rowProblems([seen], named)).join(), /m:latest in the audit row/)
          const ops = { method: "GET", target: "/healthz", raw: false }
          assert.match((yield* rowProblems([{ ...seen, request: ops }], known)).join(), /an audit row/)
        })
    )
  }
)
