import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { auditRow, call, Fake, layerGateway, newKey } from "../../support/Gateway.ts"
import { ask, assertRefused, assertWell, json } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"

const embedder = (more: object) => ({ model: "embedder", ...more })

inWorld(layerGateway())("embeddings", (test) => {
  test("when /api/embed gets a text or a list of texts, then it answers and charges the backend's count", function* () {
    const cases = [
      [{ input: "a" }, 1],
      [{ input: ["a", "b"] }, 2],
      [{ input: [""] }, 1],
      [{ input: [] }, 0],
      [{ input: "" }, 0],
      [{ input: null }, 0],
      [{}, 0]
    ] as const
    for (const [body, count] of cases) {
      const answer = yield* ask("/api/embed", embedder(body))
      assertWell(answer, JSON.stringify(body))
      assert.strictEqual(answer.contentType, "application/json; charset=utf-8")
      assert.lengthOf(json(answer).embeddings, count, JSON.stringify(body))
      assert.strictEqual(answer.calls[0]?.path, "/api/embed")
      const charged = yield* auditRow(answer.headers.get("x-request-id"))
      assert.deepInclude(charged, {
        tokens_in: BigInt(4 * count),
        tokens_out: 0n,
        usage_source: "backend"
      })
    }
  })

  test("when /api/embeddings answers, then it has one vector and nothing else, and is charged by estimate", function* () {
    const answer = yield* ask("/api/embeddings", embedder({ prompt: "x".repeat(41) }))
    assert.deepStrictEqual(Object.keys(json(answer)), ["embedding"])
    assert.lengthOf(json(answer).embedding, 8)
    assert.strictEqual(answer.calls[0]?.path, "/api/embeddings")
    assert.deepStrictEqual(answer.sent, { prompt: "x".repeat(41), model: "embedder:latest" })
    const charged = yield* auditRow(answer.headers.get("x-request-id"))
    assert.deepInclude(charged, { tokens_in: 11n, tokens_out: 0n, usage_source: "estimated" })
    const empty = yield* ask("/api/embeddings", embedder({}))
    assert.deepStrictEqual(json(empty), { embedding: [] })
    assert.deepInclude(yield* auditRow(empty.headers.get("x-request-id")), { tokens_in: 0n })
    assertRefused(yield* ask("/api/embeddings", embedder({ prompt: ["a"] })), "prompt: expected")
  })

  test("when a legacy prompt is too long, then it is a 400 whatever the backend calls it, and no failure of the backend", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    const body = `{"error":"the input length exceeds the context length"}`
    for (let i = 0; i < 6; i += 1) {
      backend.script({ does: "answer", status: 500, body })
      const answer = yield* ask("/api/embeddings", embedder({ prompt: "a" }), { secret })
      assert.strictEqual(answer.status, 400)
      assert.include(json(answer).error.message, "maximum context length")
      assert.lengthOf(answer.calls, 1)
    }
  })

  test("when large answers are sent, then each client has every number", function* () {
    const backend = yield* Fake
    const { secret } = yield* newKey()
    const input = Array.from({ length: 64 }, (_, n) => `text ${n}`)
    const numbers = (n: number) => Array.from({ length: 3000 }, (_, at) => (at + n) / 1024)
    const vectors = input.map((_, n) => JSON.stringify(numbers(n)))
    const body = `{"embeddings":[${vectors.join(",")}],"prompt_eval_count":64}`
    for (const encoding of [undefined, "float", "base64"]) {
      backend.script(...Array.from({ length: 6 }, () => ({ does: "answer", status: 200, body }) as const))
      const path = encoding === undefined ? "/api/embed" : "/v1/embeddings"
      const request = embedder(encoding === undefined ? { input } : { input, encoding_format: encoding })
      const answers = yield* Effect.forEach(
        Array.from({ length: 6 }),
        () => call(path, { secret, body: request }),
        { concurrency: 3 }
      )
      for (const answer of answers) {
        assert.strictEqual(answer.status, 200)
        if (encoding === "base64") {
          const bytes = json(answer).data.map((entry: { readonly embedding: string }) =>
            Buffer.from(entry.embedding, "base64")
          )
          assert.isTrue(bytes.every((each: Buffer, n: number) => each.readFloatLE(4) === (n + 1) / 1024))
        } else {
          for (const vector of vectors) assert.include(answer.text, vector)
        }
      }
    }
  })

  test("when an answer does not fit the question, then it is a 502 and costs nothing", function* () {
    const backend = yield* Fake
    const bodies = ["not json", `{"embeddings":[[1]]}`, `{"error":"SECRET"}`]
    const { secret } = yield* newKey()
    for (const body of bodies) {
      // In between an answer that is one: this is not about the breaker.
      assertWell(yield* ask("/api/embed", embedder({ input: "a" }), { secret }))
      backend.script({ does: "answer", status: 200, body })
      const answer = yield* ask("/api/embed", embedder({ input: ["a", "b"] }), { secret })
      assert.strictEqual(answer.status, 502, body)
      assert.deepStrictEqual(json(answer).error, {
        message: "model backend unavailable",
        type: "bad_gateway",
        code: 502
      })
      const charged = yield* auditRow(answer.headers.get("x-request-id"))
      assert.deepInclude(charged, { status: 502, tokens_in: 0n, tokens_out: 0n }, body)
    }
  })

  test("when a count cannot be true, then it is replaced, in the charge and in the answer", function* () {
    const backend = yield* Fake
    for (const count of [-5, 1e12, "7"]) {
      backend.script({
        does: "answer",
        status: 200,
        body: JSON.stringify({ embeddings: [[1]], prompt_eval_count: count })
      })
      const answer = yield* ask("/v1/embeddings", embedder({ input: "x".repeat(40) }))
      assert.deepStrictEqual(json(answer).usage, { prompt_tokens: 10, total_tokens: 10 }, String(count))
      const charged = yield* auditRow(answer.headers.get("x-request-id"))
      assert.deepInclude(charged, { tokens_in: 10n, tokens_out: 0n, usage_source: "counted" })
    }
  })

  test("when options are given, then those of embeddings are passed on, and token arrays are refused", function* () {
    const options = { truncate: false, dimensions: 4, options: { num_ctx: 9, top_k: 3 } }
    const native = yield* ask("/api/embed", embedder({ input: ["a"], ...options }))
    const sent = { ...options, input: ["a"], model: "embedder:latest", options: { top_k: 3 } }
    assert.deepStrictEqual(native.sent, sent)
    assert.notProperty((yield* ask("/api/embed", embedder({ input: "a", dimensions: 0 }))).sent, "dimensions")
    const openai = { input: "", encoding_format: null, dimensions: 3 }
    assert.deepStrictEqual((yield* ask("/v1/embeddings", embedder(openai))).sent, {
      input: [""],
      dimensions: 3,
      model: "embedder:latest"
    })
    const tooMany = Array.from({ length: 2049 }, () => "a")
    for (const [path, input, detail] of [
      [
        "/v1/embeddings",
        [1, 2],
        "not token arrays; LangChain sends text with check_embedding_ctx_length=False"
      ],
      ["/v1/embeddings", tooMany, "2048"],
      ["/api/embed", tooMany, "input"]
    ] as const)
      assertRefused(yield* ask(path, embedder({ input })), detail)
  })
})
