/** The traces of requests, at a collector: whose they continue, what they have, and what has none. */
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { Collector, type CollectedSpan, traced } from "../support/Collector.ts"
import { call, eventually, Fake, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { inWorld } from "../support/testWith.ts"

/**
 * Names and types of the published convention: github.com/open-telemetry/semantic-conventions-genai,
 * docs/gen-ai/gen-ai-spans.md ("Inference", "Embeddings") at commit 002c8a6ea1c8, which builds on semantic conventions
 * 1.41.1. HTTP names are from docs/http/http-spans.md of the latter.
 */
const convention: Readonly<Record<string, (value: unknown) => boolean>> = {
  "gen_ai.operation.name": (value) =>
    ["chat", "text_completion", "embeddings", "generate_content"].includes(String(value)),
  "gen_ai.provider.name": (value) => typeof value === "string",
  "gen_ai.request.model": (value) => typeof value === "string",
  "gen_ai.request.stream": (value) => typeof value === "boolean",
  "gen_ai.request.max_tokens": Number.isSafeInteger,
  "gen_ai.request.temperature": Number.isFinite,
  "gen_ai.response.model": (value) => typeof value === "string",
  "gen_ai.response.finish_reasons": (value) =>
    Array.isArray(value) && value.every((one) => typeof one === "string"),
  "gen_ai.response.time_to_first_chunk": Number.isFinite,
  "gen_ai.usage.input_tokens": Number.isSafeInteger,
  "gen_ai.usage.output_tokens": Number.isSafeInteger,
  "error.type": (value) => typeof value === "string",
  "http.request.method": (value) => typeof value === "string",
  "http.route": (value) => typeof value === "string",
  "http.response.status_code": Number.isSafeInteger
}

const requestSpan = Effect.fnUntraced(function* (requestId: string | null) {
  const { spans } = yield* Collector
  const find = () => spans().find(({ attributes }) => attributes["tollgate.request_id"] === requestId)
  const found = yield* eventually(Effect.sync(find), (span) => span !== undefined)
  return found ?? assert.fail(`no span of ${requestId}`)
})

const below = Effect.fnUntraced(function* ({ spanId }: CollectedSpan) {
  const { spans } = yield* Collector
  return spans().filter(({ parentSpanId }) => parentSpanId === spanId)
})

const traceId = (n: number) => n.toString(16).padStart(32, "0")
const client = "00f067aa0ba902b7"

inWorld(traced(layerGateway(), 1))("with a collector", (test) => {
  test("when a client sends a sampled traceparent, then its trace goes on through the request to the model server", function* () {
    const [backend, { secret }] = [yield* Fake, yield* newKey()]
    const traceparent = `00-${traceId(1)}-${client}-01`
    const { headers } = yield* call("/api/chat", {
      secret,
      body: hello(),
      headers: { traceparent, tracestate: "marker=1", baggage: "marker=1" }
    })
    const span = yield* requestSpan(headers.get("x-request-id"))
    assert.deepStrictEqual([span.traceId, span.parentSpanId, span.kind], [traceId(1), client, 2])
    const called = (yield* below(span)).find(({ kind }) => kind === 3)
    const sent = backend.requests.at(-1)?.headers ?? {}
    assert.strictEqual(sent["traceparent"], `00-${traceId(1)}-${called?.spanId}-01`)
    assert.notProperty(sent, "tracestate")
    assert.notProperty(sent, "baggage")
  })

  test("when a client does not sample its trace, then nothing is sent of it, and the model server learns that", function* () {
    const [backend, { spans }, { secret }] = [yield* Fake, yield* Collector, yield* newKey()]
    const traceparent = `00-${traceId(2)}-${client}-00`
    yield* call("/api/chat", { secret, body: hello(), headers: { traceparent } })
    const sent = String(backend.requests.at(-1)?.headers["traceparent"])
    assert.match(sent, new RegExp(`^00-${traceId(2)}-[0-9a-f]{16}-00$`))
    const { headers } = yield* call("/api/chat", { secret, body: hello() })
    yield* requestSpan(headers.get("x-request-id"))
    assert.isFalse(spans().some((span) => span.traceId === traceId(2)))
  })

  test("when a traceparent is malformed, then the request has a trace of its own", function* () {
    const { secret } = yield* newKey()
    const malformed = [
      "junk",
      `00-${traceId(0)}-${client}-01`,
      `00-${traceId(3)}-0000000000000000-01`,
      `ff-${traceId(3)}-${client}-01`,
      `00-${traceId(3)}-${client}-01-more`,
      `00-${"A".repeat(32)}-${client}-01`
    ]
    const answers = yield* Effect.forEach(malformed, (traceparent) =>
      call("/api/version", { secret, headers: { traceparent } })
    )
    for (const [index, { headers, status }] of answers.entries()) {
      assert.strictEqual(status, 200)
      const span = yield* requestSpan(headers.get("x-request-id"))
      assert.isUndefined(span.parentSpanId, malformed[index])
      assert.notStrictEqual(span.traceId, traceId(3))
    }
  })

  test("when models are asked, then names and types of all attributes are those of the convention", function* () {
    const { secret, tenant } = yield* newKey()
    yield* (yield* Registry).setModels(tenant, { aliases: { fast: "m:latest" } })
    const calls = [
      [
        "/api/chat",
        hello({ options: { temperature: 0.5, num_predict: 9 } }),
        "chat m:latest",
        { "gen_ai.request.max_tokens": 9, "gen_ai.request.temperature": 0.5 }
      ],
      ["/v1/chat/completions", hello({ model: "fast" }), "chat fast", { "gen_ai.request.stream": false }],
      ["/api/generate", { model: "m", prompt: "Hello" }, "text_completion m:latest", {}],
      ["/v1/completions", { model: "m", prompt: "Hello" }, "text_completion m:latest", {}]
    ] as const
    const embedded = yield* call("/v1/embeddings", { secret, body: { model: "embedder", input: "Hello" } })
    const answers = yield* Effect.forEach(calls, ([path, body, name, more]) =>
      Effect.map(call(path, { secret, body }), ({ headers }) => ({ headers, more, name, path }))
    )
    for (const { headers, more, name, path } of answers) {
      const span = yield* requestSpan(headers.get("x-request-id"))
      assert.strictEqual(span.name, name)
      assert.deepInclude(span.attributes, {
        "gen_ai.provider.name": "ollama",
        "gen_ai.response.model": "m:latest",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "http.route": path,
        ...more
      })
      assert.property(span.attributes, "gen_ai.response.time_to_first_chunk")
    }
    const span = yield* requestSpan(embedded.headers.get("x-request-id"))
    assert.strictEqual(span.name, "embeddings embedder:latest")
    assert.sameMembers(
      Object.keys(span.attributes).filter((name) => name.startsWith("gen_ai.")),
      ["operation.name", "provider.name", "request.model", "response.model", "usage.input_tokens"].map(
        (name) => `gen_ai.${name}`
      )
    )
    const { spans } = yield* Collector
    for (const { attributes, kind } of spans()) {
      for (const [name, value] of Object.entries(attributes)) {
        // Spans of the database have names of their own; only `server` spans are ours alone.
        if (kind !== 2 && !name.startsWith("gen_ai.")) continue
        if (name.startsWith("tollgate.")) continue
        assert.isTrue(convention[name]?.(value), `${name}: ${JSON.stringify(value)}`)
      }
    }
  })

  test("when gates decide, then each has a span with its verdict, and the refusal is the last one", function* () {
    const verdicts = (span: CollectedSpan) =>
      Effect.map(below(span), (spans) =>
        spans
          .filter(({ attributes }) => "tollgate.verdict" in attributes)
          .map(({ attributes, name }) => [name, attributes["tollgate.verdict"]])
      )
    const { secret } = yield* newKey({ rpm: 1 })
    const answered = yield* call("/api/chat", { secret, body: hello() })
    const refused = yield* call("/api/chat", { secret, body: hello() })
    const unknown = yield* call("/api/chat", { secret, body: hello({ model: "marker-model" }) })
    const first = yield* requestSpan(answered.headers.get("x-request-id"))
    const gates = ["authenticate", "read request", "resolve model", "reserve"]
    assert.deepStrictEqual(
      yield* verdicts(first),
      [...gates, "wait for place", "check breaker", "open intent"].map((gate) => [gate, "admitted"])
    )
    const second = yield* requestSpan(refused.headers.get("x-request-id"))
    assert.deepInclude(second.attributes, { "error.type": "rate_limit_exceeded" })
    assert.notProperty(second.attributes, "gen_ai.response.model")
    assert.deepStrictEqual(yield* verdicts(second), [
      ...gates.slice(0, 3).map((gate) => [gate, "admitted"]),
      ["reserve", "rate_limit_exceeded"]
    ])
    const third = yield* requestSpan(unknown.headers.get("x-request-id"))
    assert.strictEqual(third.name, "POST /api/chat")
    assert.notInclude(JSON.stringify(third.attributes), "marker-model")
  })

  test("when the model server fails, then the span of the request is failed", function* () {
    const [backend, { secret }] = [yield* Fake, yield* newKey()]
    backend.script({ does: "answer", status: 500, body: "{}" })
    const { headers, status } = yield* call("/api/chat", { secret, body: hello() })
    assert.strictEqual(status, 502)
    const span = yield* requestSpan(headers.get("x-request-id"))
    assert.deepStrictEqual([span.status, span.attributes["error.type"]], [2, "bad_gateway"])
  })

  test("when the gateway works for itself, then it has no spans: every root is a request", function* () {
    const [backend, { spans }, { secret }] = [yield* Fake, yield* Collector, yield* newKey()]
    yield* call("/readyz")
    yield* call("/healthz")
    const polls = backend.lookups.length
    yield* backend.until(() => backend.lookups.length > polls + 1)
    // Their row is written by a loop that a request starts.
    yield* call("/api/tags", { secret: "nobody" })
    const { headers } = yield* call("/api/chat", { secret, body: hello() })
    yield* requestSpan(headers.get("x-request-id"))
    const roots = spans().filter(({ parentSpanId }) => parentSpanId === undefined)
    assert.isAbove(roots.length, 0)
    for (const root of roots) {
      assert.strictEqual(root.kind, 2, root.name)
      assert.property(root.attributes, "tollgate.request_id")
      assert.notInclude(["/readyz", "/healthz"], root.attributes["http.route"])
    }
  })
})

inWorld(traced(layerGateway(), 0))("with a ratio of 0", (test) => {
  test("when clients sample everything, then nothing is sent", function* () {
    const [backend, { bodies }, { secret }] = [yield* Fake, yield* Collector, yield* newKey()]
    for (const headers of [{}, { traceparent: `00-${traceId(5)}-${client}-01` }]) {
      yield* call("/api/chat", { secret, body: hello(), headers })
      assert.match(
        String(backend.requests.at(-1)?.headers["traceparent"]),
        /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/
      )
    }
    assert.deepStrictEqual(bodies, [])
  })
})
