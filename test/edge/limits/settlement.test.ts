/** However a request ends, it is charged once, audited once, and its slot and hold are free. */
import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { type Behaviour, fake as wire } from "../../support/FakeBackend.ts"
import { call, eventually, Fake, hello, layerGateway, newKey } from "../../support/Gateway.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const budget = 100_000
/** What the gateway takes "Hello" for: two tokens of text, eight of template. The fake backend says seven. */
const estimate = 10

const words = (count: number) => Array.from({ length: count }, () => wire.chat("word "))

const stream = (lines: ReadonlyArray<string | ReturnType<typeof wire.chat>>, more = {}): Behaviour => ({
  does: "stream",
  lines,
  ...more
})

/** How it ends; what the backend does with every call, also with one that is made again; what row and charge are. */
const endings: ReadonlyArray<readonly [string, Behaviour, number, number, string]> = [
  ["with the backend's own counts", stream([...words(3), wire.done()]), 200, 10, "backend"],
  [
    "without counts",
    stream([...words(3), wire.chat(""), `{"model":"fake","done":true,"done_reason":"stop"}`]),
    200,
    estimate + 3,
    "counted"
  ],
  [
    "with absurd counts",
    stream([...words(3), wire.done("chat", { prompt_eval_count: 10_000_000, eval_count: 3.7 })]),
    200,
    estimate + 3,
    "counted"
  ],
  ["cut by the backend in the middle", stream(words(2), { ends: "reset" }), 502, estimate + 2, "counted"],
  ["ended by the backend without a last frame", stream(words(2)), 200, estimate + 2, "counted"],
  [
    "given up because the backend says nothing more",
    stream(words(2), { ends: "hang" }),
    502,
    estimate + 2,
    "counted"
  ],
  ["cut by the backend before anything came", { does: "reset" }, 502, 0, "estimated"]
]

const rowsOf = Effect.fnUntraced(function* (prefix: string) {
  return yield* sql<{
    readonly status: number
    readonly tokens: number
    readonly usage_source: string | null
  }>`SELECT status, (tokens_in + tokens_out)::float8 AS tokens, usage_source FROM audit_log
     WHERE key_prefix = ${prefix} AND method = 'POST'`
})

const ledgerOf = Effect.fnUntraced(function* (prefix: string) {
  return yield* sql<{ readonly requests: number; readonly tokens: number }>`
    SELECT requests::float8 AS requests, (tokens_in + tokens_out)::float8 AS tokens
    FROM ledger JOIN api_keys k ON k.id = key_id WHERE k.prefix = ${prefix}`
})

const env = {
  BACKEND_IDLE_TIMEOUT_MS: "600",
  BACKEND_FIRST_BYTE_TIMEOUT_MS: "5000",
  BREAKER_FAILURES: "1000"
}

inWorld(layerGateway(env))("a request", (test) => {
  for (const streamed of [true, false]) {
    describe(streamed ? "that streams" : "for a whole answer", () => {
      for (const [name, behaviour, status, tokens, source] of endings) {
        test(`when it ends ${name}, then it is charged ${tokens} tokens, once`, function* () {
          const [backend, registry] = [yield* Fake, yield* Registry]
          const { secret, prefix } = yield* newKey({ concurrent: 1 })
          yield* registry.changeKey(prefix, { budgetTotal: budget })
          backend.always(behaviour)
          yield* Effect.exit(call("/api/chat", { secret, body: hello({ stream: streamed }) }))
          backend.always(undefined)

          const rows = yield* eventually(rowsOf(prefix), (found) => found.length > 0)
          assert.deepStrictEqual(
            [...rows].map((row) => ({ ...row })),
            [{ status, tokens, usage_source: source }]
          )
          const ledger = yield* ledgerOf(prefix)
          assert.strictEqual(ledger[0]?.tokens ?? 0, tokens)
          assert.isAtMost(ledger[0]?.requests ?? 0, 1)

          const after = yield* eventually(
            call("/api/version", { secret }),
            ({ headers }) => headers.get("x-budget-tokens-remaining") === String(budget - tokens)
          )
          assert.strictEqual(after.headers.get("x-budget-tokens-remaining"), String(budget - tokens))
          assert.strictEqual((yield* sql`SELECT 1 FROM intents WHERE key_prefix = ${prefix}`).length, 0)
          // The only slot is free again.
          assert.strictEqual((yield* call("/api/chat", { secret, body: hello() })).status, 200)
          assert.strictEqual((yield* rowsOf(prefix)).length, 2)
        })
      }
    })
  }
})

inWorld(layerGateway({ ...env, REQUEST_MAX_DURATION_MS: "700", BACKEND_IDLE_TIMEOUT_MS: "60000" }))(
  "a request past its deadline",
  (test) => {
    test("when it lasts too long, then it is ended in its own words and charged what it had", function* () {
      const backend = yield* Fake
      const { secret, prefix } = yield* newKey({ concurrent: 1 })
      backend.script(stream(words(100), { gapMs: 50 }))
      const answer = yield* call("/api/chat", { secret, body: hello() })
      assert.include(answer.text, `{"error":"`)
      const [row] = yield* eventually(rowsOf(prefix), (found) => found.length > 0)
      assert.strictEqual(row?.status, 502)
      const shown = answer.text.split("word ").length - 1
      assert.isAbove(shown, 3)
      assert.strictEqual(row?.tokens, estimate + shown)
      assert.strictEqual((yield* call("/api/chat", { secret, body: hello() })).status, 200)
    })
  }
)
