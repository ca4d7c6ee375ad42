/**
 * Requests of applications that cannot be run in a suite, in the shapes their sources build them: Open WebUI's Ollama and
 * OpenAI connections, Continue's Ollama provider, Zed's OpenAI-compatible provider. Each line says what the gateway answers.
 */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { call, newKey } from "../test/support/Gateway.ts"
import { layerRealGateway } from "./RealGateway.ts"

interface Replayed {
  readonly what: string
  readonly path: string
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** sent without the key */
  readonly keyless?: boolean
  readonly status: number
  readonly says?: string
}

const forwarded = {
  "x-openwebui-user-name": "Ann%20Example",
  "x-openwebui-user-id": "7c0f2f4e-0000-4000-8000-000000000000",
  "x-openwebui-user-email": "ann@example.org",
  "x-openwebui-user-role": "user",
  "x-openwebui-chat-id": "d9b1a6f0-0000-4000-8000-000000000000"
}
const json = { "content-type": "application/json" }
const messages = [
  { role: "system", content: "You are kind." },
  { role: "user", content: "hi" }
]
const params = {
  temperature: 0.7,
  num_ctx: 8192,
  num_predict: 16,
  top_k: 40,
  mirostat: 0,
  num_thread: 4,
  num_gpu: 1,
  use_mmap: true
}
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] }
  }
}

const openWebUi: ReadonlyArray<Replayed> = [
  { what: "the connection is verified", path: "/api/version", status: 200, says: '"version":"' },
  {
    what: "the version of one server is asked without the key",
    path: "/api/version",
    keyless: true,
    status: 401
  },
  {
    what: "models are listed",
    path: "/api/tags",
    headers: { ...json, ...forwarded },
    status: 200,
    says: '"plain:latest"'
  },
  { what: "loaded models are asked; it goes on without", path: "/api/ps", status: 403 },
  {
    what: "a model is shown",
    path: "/api/show",
    body: { model: "plain:latest" },
    headers: forwarded,
    status: 200
  },
  {
    what: "a chat is streamed",
    path: "/api/chat",
    headers: forwarded,
    body: { model: "plain:latest", messages, stream: true, keep_alive: "5m", options: params },
    status: 200,
    says: '"done":true'
  },
  {
    what: "a title is asked, not streamed",
    path: "/api/chat",
    body: { model: "plain:latest", messages, stream: false, options: { num_predict: 16 } },
    status: 200,
    says: '"done":true'
  },
  {
    what: "a chat with tools",
    path: "/api/chat",
    body: { model: "tools:latest", messages, stream: true, tools: [weather], options: { num_predict: 60 } },
    status: 200,
    says: '"get_weather"'
  },
  {
    what: "texts are embedded",
    path: "/api/embed",
    body: { model: "embed:latest", input: ["one", "two"], truncate: true },
    status: 200,
    says: '"embeddings":[['
  },
  {
    what: "a text is embedded, the old way",
    path: "/api/embeddings",
    body: { model: "embed:latest", prompt: "one", options: {}, keep_alive: 300 },
    status: 200,
    says: '"embedding":['
  },
  {
    what: "a model is unloaded: it stays",
    path: "/api/generate",
    body: { model: "plain:latest", keep_alive: 0, prompt: "" },
    status: 200,
    says: '"done_reason":"load"'
  },
  {
    what: "an administrator pulls a model",
    path: "/api/pull",
    body: { model: "x", insecure: true },
    status: 403
  },
  { what: "models of an OpenAI connection", path: "/v1/models", status: 200, says: '"plain:latest"' },
  {
    what: "a chat of an OpenAI connection",
    path: "/v1/chat/completions",
    headers: forwarded,
    body: {
      model: "plain:latest",
      messages,
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 16,
      temperature: 0.7,
      user: "ann"
    },
    status: 200,
    says: "data: [DONE]"
  }
]

const continueParams = {
  temperature: undefined,
  top_p: undefined,
  num_predict: 64,
  stop: ["<|role|>"],
  num_ctx: 8192,
  mirostat: undefined,
  num_thread: undefined,
  use_mmap: undefined
}
const continueDev: ReadonlyArray<Replayed> = [
  { what: "a model is shown by the older field", path: "/api/show", body: { name: "plain" }, status: 200 },
  { what: "models are listed", path: "/api/tags", headers: json, status: 200, says: '"plain:latest"' },
  {
    what: "a chat is streamed",
    path: "/api/chat",
    body: { model: "plain", messages, options: continueParams, keep_alive: 1800, stream: true },
    status: 200,
    says: '"done":true'
  },
  {
    what: "a chat with tools is not streamed",
    path: "/api/chat",
    body: {
      model: "tools",
      messages,
      options: continueParams,
      keep_alive: 1800,
      stream: false,
      tools: [weather]
    },
    status: 200,
    says: '"get_weather"'
  },
  {
    what: "code is completed as raw text",
    path: "/api/generate",
    body: {
      model: "plain",
      prompt: "PRE a SUF b MID",
      raw: true,
      options: continueParams,
      keep_alive: 1800,
      stream: true
    },
    status: 200,
    says: '"done":true'
  },
  {
    what: "code is completed with a suffix",
    path: "/api/generate",
    body: {
      model: "fim",
      prompt: "a",
      suffix: "b",
      raw: false,
      options: continueParams,
      keep_alive: 1800,
      stream: true
    },
    status: 200,
    says: '"done":true'
  },
  {
    what: "texts are embedded",
    path: "/api/embed",
    body: { model: "embed", input: ["one", "two"] },
    status: 200,
    says: '"embeddings":[['
  }
]

/** `crates/open_ai/src/open_ai.rs` of Zed, commit 014676e4: its stream and its tools; a message may be a list of parts. */
const zedRequest = {
  stream: true,
  stream_options: { include_usage: true },
  max_completion_tokens: 60,
  temperature: 1,
  parallel_tool_calls: true
}
const zed: ReadonlyArray<Replayed> = [
  {
    what: "a chat is streamed",
    path: "/v1/chat/completions",
    body: { ...zedRequest, model: "plain:latest", messages, stop: ["<end>"], reasoning_effort: "low" },
    status: 200,
    says: '"completion_tokens":'
  },
  {
    what: "a chat with tools",
    path: "/v1/chat/completions",
    body: { ...zedRequest, model: "tools:latest", messages, tools: [weather], tool_choice: "auto" },
    status: 200,
    says: '"finish_reason":"tool_calls"'
  },
  {
    what: "the result of a tool is sent back",
    path: "/v1/chat/completions",
    body: {
      ...zedRequest,
      model: "tools:latest",
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "the" },
            { type: "text", text: "weather" }
          ]
        },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "call_1", type: "function", function: { name: "get_weather", arguments: "{}" } }]
        },
        { role: "tool", content: "rain", tool_call_id: "call_1" }
      ],
      tools: [weather]
    },
    status: 200,
    says: "data: [DONE]"
  }
]

layer(layerRealGateway(), { excludeTestServices: true, timeout: 600_000 })("replayed requests", (it) => {
  for (const [application, requests] of Object.entries({
    "Open WebUI": openWebUi,
    Continue: continueDev,
    Zed: zed
  })) {
    for (const { body, headers, keyless, path, says, status, what } of requests) {
      it.effect(`when ${application} does ${what}, then it works`, () =>
        Effect.gen(function* () {
          const { secret } = yield* newKey()
          const answer = yield* call(path, {
            ...(keyless === true ? {} : { secret }),
            ...(body === undefined ? {} : { body }),
            ...(headers === undefined ? {} : { headers })
          })
          assert.strictEqual(answer.status, status, answer.text)
          if (says !== undefined) assert.include(answer.text, says)
        })
      )
    }
  }
})
