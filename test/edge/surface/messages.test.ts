/** `/v1/messages` at the edge: what goes to the model server, what the client gets, and what it costs. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../../src/admin/Registry.ts"
import { call, Fake, layerGateway, newKey, rowOf } from "../../support/Gateway.ts"
import { ask, json } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const message = (more: Readonly<Record<string, unknown>> = {}) => ({
  model: "m",
  max_tokens: 100,
  messages: [{ role: "user", content: "Hello" }],
  ...more
})

const countTokens = "/v1/messages/count_tokens"

inWorld(layerGateway({ EXTRA_SURFACES: "messages", NUM_PREDICT_CAP: "4096" }))(
  "POST /v1/messages",
  (test) => {
    test("when it is asked without a stream, then the model server's chat answers, and its counts are charged", function* () {
      const { secret } = yield* newKey()
      const answer = yield* ask("/v1/messages?beta=true", message({ max_tokens: 32_000 }), { secret })
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(
        answer.calls.map(({ path }) => path),
        ["/api/chat"]
      )
      assert.deepStrictEqual(answer.sent?.["options"], { num_predict: 4096 })
      assert.strictEqual(answer.headers.get("x-max-tokens"), "4096")
      const id = answer.headers.get("x-request-id")
      assert.strictEqual(answer.headers.get("request-id"), id)
      assert.deepStrictEqual(json(answer), {
        id: `msg_${id?.replaceAll("-", "")}`,
        type: "message",
        role: "assistant",
        model: "m",
        content: [{ type: "text", text: "Hello world!" }],
        stop_reason: "end_turn",
        stop_sequence: null,
        usage: { input_tokens: 7, output_tokens: 3 }
      })
      assert.deepInclude(yield* rowOf(answer), { status: 200, tokens_in: 7n, tokens_out: 3n })
      const rows = yield* sql`SELECT endpoint FROM audit_log WHERE request_id = ${id}::text::uuid`
      assert.deepStrictEqual(rows, [{ endpoint: "/v1/messages" }])
    })

    test("when the key is in x-api-key, then it is as good as in Authorization; two that differ are refused", function* () {
      const [{ secret }, other] = [yield* newKey(), yield* newKey()]
      const status = (headers: Readonly<Record<string, string>>, path = "/v1/messages") =>
        Effect.map(call(path, { headers, body: message() }), (answer) => answer.status)
      const bearer = `Bearer ${secret}`
      for (const path of ["/v1/messages", countTokens])
        assert.strictEqual(yield* status({ "x-api-key": secret }, path), 200)
      assert.strictEqual(yield* status({ "x-api-key": secret, authorization: bearer }), 200)
      for (const headers of [
        { "x-api-key": other.secret, authorization: bearer },
        { "x-api-key": "", authorization: bearer },
        { "x-api-key": secret, authorization: "Bearer" },
        { "x-api-key": `${secret}, ${secret}` },
        { "x-api-key": bearer }
      ])
        assert.strictEqual(yield* status(headers), 401, JSON.stringify(headers))
      assert.strictEqual(yield* status({ "x-api-key": secret }, "/v1/chat/completions"), 401)
    })

    test("when it is refused, then the error has the common shape with the type that Anthropic's clients know", function* () {
      const [backend, registry] = [yield* Fake, yield* Registry]
      const spent = yield* newKey()
      yield* registry.changeKey(spent.prefix, { budgetDaily: 5 })
      yield* ask("/v1/messages", message(), { secret: spent.secret })
      const { secret } = yield* newKey()
      const tooLong = message({ system: "x".repeat(262_144) })
      const refusals = [
        [yield* call("/v1/messages", { body: message() }), 401, "authentication_error", "unauthorized"],
        [yield* ask("/v1/messages", message({ model: "nothing" })), 403, "permission_error", "forbidden"],
        [
          yield* ask("/v1/messages", { model: "m", messages: [] }),
          400,
          "invalid_request_error",
          "invalid_request"
        ],
        [yield* ask("/v1/messages", tooLong, { secret }), 413, "request_too_large", "payload_too_large"],
        [
          yield* ask("/v1/messages", message(), { secret: spent.secret }),
          429,
          "rate_limit_error",
          "budget_exceeded"
        ]
      ] as const
      backend.script({ does: "answer", status: 500, body: "{}" })
      const failed = [yield* ask("/v1/messages", message()), 502, "api_error", "bad_gateway"] as const
      for (const [answer, status, type, audited] of [...refusals, failed]) {
        const { error, request_id, ...rest } = json(answer)
        assert.strictEqual(answer.status, status)
        assert.deepStrictEqual(rest, { type: "error" })
        assert.deepInclude(error, { type, code: status })
        assert.strictEqual(answer.headers.get("request-id"), request_id)
        assert.strictEqual((yield* rowOf(answer))?.error_type, audited)
      }
      // Claude Code would ask again for minutes, and show nothing.
      for (const [refused] of [refusals[0], refusals[4]])
        assert.strictEqual(refused.headers.get("x-should-retry"), "false")
    })

    test("when tokens are counted, then the model server is not asked, and one request and no token is charged", function* () {
      const { secret } = yield* newKey({ rpm: 5, tpm: 1000 })
      const answer = yield* ask(
        countTokens,
        { model: "m", messages: [{ role: "user", content: "Hello" }] },
        { secret }
      )
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(answer.calls, [])
      assert.isAbove(json(answer).input_tokens, 0)
      const { headers } = yield* call("/api/version", { secret })
      assert.strictEqual(headers.get("x-ratelimit-remaining-requests"), "4")
      assert.strictEqual(headers.get("x-ratelimit-remaining-tokens"), "1000")
      assert.deepInclude(yield* rowOf(answer), {
        status: 200,
        tokens_in: 0n,
        tokens_out: 0n,
        model: "m:latest"
      })
      const other = yield* newKey({ models: ["other"] })
      assert.strictEqual((yield* ask(countTokens, message(), other)).status, 403)
    })

    test("when Claude Code says hello, then it is answered without a key, and only HEAD is", function* () {
      assert.strictEqual((yield* call("/api/hello", { method: "HEAD" })).status, 200)
      assert.strictEqual((yield* call("/api/hello")).status, 403)
      assert.strictEqual((yield* call("/v1/messages/batches", { body: {} })).status, 403)
      assert.strictEqual((yield* call("/v1/models/m")).status, 403)
    })
  }
)
