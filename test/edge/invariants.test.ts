/** The invariants can fail: the books are broken here once, and the checker says which. */
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { bookProblems, rowProblems } from "../support/invariants.ts"
import { call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { layerPatientRedis, TestRedis } from "../support/TestRedis.ts"
import { inWorld } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const meter = Layer.unwrap(
  Effect.map(TestRedis, ({ url }) =>
    layerRedisMeter({ leaseS: 30 }).pipe(Layer.provide(layerPatientRedis(url)))
  )
)

inWorld(Layer.provideMerge(meter, layerGateway()))("a gateway whose books are tampered with", (test) => {
  test("when audit and ledger disagree, or a row says something else, then the checker says so", function* () {
    const { secret, tenant } = yield* newKey()
    const problems = Effect.map(bookProblems, (found) => found.join("\n"))
    const chat = call("/api/chat", { secret, body: hello({ stream: false }) })
    const { headers } = yield* eventually(chat, ({ status }) => status === 200)
    assert.strictEqual(yield* eventually(problems, (found) => found === ""), "")
    yield* sql`UPDATE ledger SET tokens_out = tokens_out + 5`
    const found = yield* problems
    assert.match(found, /audit \d+, ledger \d+, counters \d+ tokens/)
    assert.include(found, `usage of ${tenant}, day: shown`)
    yield* sql`UPDATE ledger SET tokens_out = tokens_out - 5`

    const answer = {
      status: 200,
      headers: new Map([["x-request-id", headers.get("x-request-id") ?? ""]]),
      body: "{}",
      bodiless: false,
      request: { method: "POST", target: "/api/chat", raw: false }
    }
    const rows = (changes: Partial<typeof answer>, addresses: ReadonlyArray<string> = []) =>
      Effect.map(rowProblems([{ ...answer, ...changes }], { secrets: [], addresses }), String)
    assert.strictEqual(yield* rows({}), "")
    const other = new Map([["x-request-id", crypto.randomUUID()]])
    assert.match(yield* rows({ headers: other }), /no audit row: 200 POST/)
    assert.match(yield* rows({ status: 503 }), /200 in the audit row: 503/)
    assert.match(yield* rows({}, ["m:latest"]), /m:latest in the audit row/)
    const ops = { method: "GET", target: "/healthz", raw: false }
    assert.match(yield* rows({ request: ops }), /an audit row/)
  })
})
