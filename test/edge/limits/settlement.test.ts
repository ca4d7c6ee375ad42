/** However a request ends, it is charged once, audited once, and its slot and hold are free. */
// A client of these tests leaves by its own AbortController.
// @effect-diagnostics abortControllerInEffect:off
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Registry } from "../../../src/admin/Registry.ts"
import { type Behaviour, fake as wire } from "../../support/FakeBackend.ts"
import {
  call,
  eventually,
  Fake,
  Gateway,
  hello,
  layerGateway,
  modelSpeaks,
  newKey
} from "../../support/Gateway.ts"

const live = { excludeTestServices: true } as const

const budget = 100_000
/** What the gateway takes "Hello" for: two tokens of text, eight of template. The fake backend says seven. */
const estimate = 10

const words = (count: number) => Array.from({ length: count }, () => wire.chat("word "))

interface Ending {
  readonly name: string
  /** what the backend does with every call, also with one that is made again on a new connection */
  readonly backend: Behaviour
  /** the client leaves as soon as the backend has written this much */
  readonly leavesAfterBytes?: number
  readonly status: number
  readonly tokens: number
  readonly source: string
  /** the model is known to speak as it generates: it has generated nothing before its first token */
  readonly speaks?: boolean
}

const stream = (lines: ReadonlyArray<string | ReturnType<typeof wire.chat>>, more = {}): Behaviour => ({
  does: "stream",
  lines,
  ...more
})

const endings: ReadonlyArray<Ending> = [
  {
    name: "with the backend's own counts",
    backend: stream([...words(3), wire.done()]),
    status: 200,
    tokens: 10,
    source: "backend"
  },
  {
    name: "without counts",
    backend: stream([...words(3), wire.chat(""), `{"model":"fake","done":true,"done_reason":"stop"}`]),
    status: 200,
    tokens: estimate + 3,
    source: "counted"
  },
  ...[3.7, 10_000_000].map((eval_count) => ({
    name: `with ${eval_count} as the output count`,
    backend: stream([...words(3), wire.done("chat", { eval_count })]),
    status: 200,
    tokens: 7 + 3,
    source: "counted"
  })),
  {
    name: "with an absurd prompt count",
    backend: stream([...words(3), wire.done("chat", { prompt_eval_count: 10_000_000 })]),
    status: 200,
    tokens: estimate + 3,
    source: "counted"
  },
  {
    name: "cut by the backend in the middle",
    backend: stream(words(2), { ends: "reset" }),
    status: 502,
    tokens: estimate + 2,
    source: "counted"
  },
  {
    name: "ended by the backend without a last frame",
    backend: stream(words(2)),
    status: 200,
    tokens: estimate + 2,
    source: "counted"
  },
  {
    name: "given up because the backend says nothing more",
    backend: stream(words(2), { ends: "hang" }),
    status: 502,
    tokens: estimate + 2,
    source: "counted"
  },
  {
    name: "refused by the backend",
    backend: { does: "answer", status: 500 },
    status: 502,
    tokens: 0,
    source: "estimated"
  },
  {
    name: "cut by the backend before anything came",
    backend: { does: "reset" },
    status: 502,
    tokens: 0,
    source: "estimated"
  },
  {
    name: "left by the client before anything came",
    backend: { does: "hang" },
    leavesAfterBytes: 0,
    status: 499,
    tokens: estimate,
    source: "estimated",
    speaks: true
  },
  {
    name: "left by the client in the middle",
    backend: stream(words(50), { ends: "hang", together: true }),
    leavesAfterBytes: 1000,
    status: 499,
    tokens: estimate + 50,
    source: "counted",
    speaks: true
  }
]

const rowsOf = Effect.fnUntraced(function* (prefix: string) {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{
    readonly status: number
    readonly tokens: number
    readonly usage_source: string | null
  }>`SELECT status, (tokens_in + tokens_out)::float8 AS tokens, usage_source FROM audit_log
     WHERE key_prefix = ${prefix} AND method = 'POST'`
})

const ledgerOf = Effect.fnUntraced(function* (prefix: string) {
  const sql = yield* SqlClient.SqlClient
  return yield* sql<{ readonly requests: number; readonly tokens: number }>`
    SELECT requests::float8 AS requests, (tokens_in + tokens_out)::float8 AS tokens
    FROM ledger JOIN api_keys k ON k.id = key_id WHERE k.prefix = ${prefix}`
})

/** Answers that have begun in this gateway. */
const firstFrames = Effect.map(call("/metrics"), ({ text }) =>
  Number(/^tollgate_backend_first_frame_seconds_count\{model="[^"]*"\} (\d+)$/m.exec(text)?.[1])
)

const env = {
  BACKEND_IDLE_TIMEOUT_MS: "600",
  BACKEND_FIRST_BYTE_TIMEOUT_MS: "5000",
  BREAKER_FAILURES: "1000"
}

layer(layerGateway(env), live)("a request", (it) => {
  for (const streamed of [true, false]) {
    describe(streamed ? "that streams" : "for a whole answer", () => {
      for (const ending of endings) {
        it.effect(`when it ends ${ending.name}, then it is charged ${ending.tokens} tokens, once`, () =>
          Effect.gen(function* () {
            const [backend, { url }, registry] = [yield* Fake, yield* Gateway, yield* Registry]
            const { secret, prefix } = yield* newKey({ concurrent: 1 })
            yield* registry.setBudgets(prefix, { total: budget })
            if (ending.speaks === true) yield* modelSpeaks
            backend.always(ending.backend)
            const [arrived, before] = [backend.requests.length, yield* firstFrames]

            const leaving = new AbortController()
            const answer = fetch(`${url}/api/chat`, {
              method: "POST",
              signal: leaving.signal,
              headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
              body: JSON.stringify(hello({ stream: streamed }))
            }).then(
              (response) => response.text().catch(() => "cut"),
              () => "none"
            )
            const { leavesAfterBytes } = ending
            if (leavesAfterBytes !== undefined) {
              yield* backend.until(() => (backend.requests[arrived]?.written ?? -1) >= leavesAfterBytes)
              // What was written has to have arrived.
              if (leavesAfterBytes > 0) {
                assert.isAbove(yield* eventually(firstFrames, (count) => count > before), before)
              }
              leaving.abort()
            }
            yield* Effect.promise(() => answer)
            backend.always(undefined)

            const rows = yield* eventually(rowsOf(prefix), (found) => found.length > 0)
            const expected = { status: ending.status, tokens: ending.tokens, usage_source: ending.source }
            assert.deepStrictEqual(
              [...rows].map((row) => ({ ...row })),
              [expected]
            )
            const ledger = yield* ledgerOf(prefix)
            assert.strictEqual(ledger[0]?.tokens ?? 0, ending.tokens)
            assert.isAtMost(ledger[0]?.requests ?? 0, 1)

            const after = yield* eventually(
              call("/api/version", { secret }),
              ({ headers }) => headers.get("x-budget-tokens-remaining") === String(budget - ending.tokens)
            )
            assert.strictEqual(after.headers.get("x-budget-tokens-remaining"), String(budget - ending.tokens))
            const sql = yield* SqlClient.SqlClient
            assert.strictEqual((yield* sql`SELECT 1 FROM intents WHERE key_prefix = ${prefix}`).length, 0)
            // The only slot is free again.
            assert.strictEqual((yield* call("/api/chat", { secret, body: hello() })).status, 200)
            assert.strictEqual((yield* rowsOf(prefix)).length, 2)
          })
        )
      }
    })
  }
})

layer(layerGateway({ ...env, REQUEST_MAX_DURATION_MS: "700", BACKEND_IDLE_TIMEOUT_MS: "60000" }), live)(
  "a request past its deadline",
  (it) => {
    it.effect("when it lasts too long, then it is ended in its own words and charged what it had", () =>
      Effect.gen(function* () {
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
    )
  }
)
