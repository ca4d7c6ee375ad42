/** One body through all that decides on it, to what the backend is sent; and what must hold of that. */
import { guards } from "../../src/backend/ollama/guards/guards.ts"
import { uncounted } from "../../src/memory/MemoryLedger.ts"
import { noOutput } from "../../src/domain/outputPlan.ts"
import { assert } from "@effect/vitest"
import { Effect, Result, Struct } from "effect"
import { Backend } from "../../src/backend/Backend.ts"
import { isObject } from "../../src/domain/json.ts"
import { Catalog } from "../../src/gates/models/Catalog.ts"
import { parseBody } from "../../src/http/dialect/strictJson.ts"
import type { Decode } from "../../src/http/dialect/Dialect.ts"
import { withPromptSize } from "../../src/http/dialect/promptEstimate.ts"
import {
  nativeChat,
  nativeEmbed,
  nativeEmbeddings,
  nativeGenerate
} from "../../src/http/dialect/native/dialect.ts"
import { openaiChat, openaiCompletions, openaiEmbeddings } from "../../src/http/dialect/openai/dialect.ts"
import { messages } from "../../src/http/dialect/messages/dialect.ts"
import { responses } from "../../src/http/dialect/responses/dialect.ts"
import { nativeOptions } from "../../src/http/dialect/sampling.ts"
import type { InferenceKind, InferenceRequest, Json, JsonObject } from "../../src/domain/Inference.ts"
import { type Behaviour, fake as fakeLines, type FakeBackend, folded } from "../support/FakeBackend.ts"
import { modelNamed, permitFor, prepared } from "../support/permits.ts"
import { picture } from "../support/pictures.ts"
import { mutateBytes } from "./bytes.ts"
import { mutateTree, textOf, treeOf } from "./jsonTree.ts"
import type { Random } from "./Random.ts"

export const surfaces = {
  "native-chat": nativeChat,
  "native-generate": nativeGenerate,
  "openai-chat": openaiChat,
  "openai-completions": openaiCompletions,
  messages,
  "native-embed": nativeEmbed,
  "native-embeddings": nativeEmbeddings,
  "openai-embeddings": openaiEmbeddings,
  responses
} satisfies Record<string, { readonly decode: Decode }>

export type Surface = keyof typeof surfaces

export const surfaceNames = Struct.keys(surfaces)

export const isSurface = (name: string): name is Surface => Object.hasOwn(surfaces, name)

const message = { role: "user", content: "Grüße 🚀" }
const tool = { type: "function", function: { name: "f", description: "d", parameters: { type: "object" } } }
const options = { temperature: 0.5, seed: 7, num_predict: 100, stop: ["x"], num_ctx: 8192, top_k: 3 }

const seeds: { readonly [S in Surface]: readonly [JsonObject, ...Array<JsonObject>] } = {
  "native-chat": [
    { model: "m", messages: [message], stream: false, options },
    {
      model: "m:latest",
      messages: [
        { role: "system", content: "s" },
        { ...message, images: [picture] },
        {
          role: "assistant",
          content: "",
          tool_calls: [{ id: "c", function: { name: "f", arguments: { a: 1 } } }]
        },
        { role: "tool", content: "r", tool_name: "f", tool_call_id: "c" }
      ],
      tools: [tool],
      format: { type: "object", properties: {} },
      think: "low",
      logprobs: true,
      top_logprobs: 3,
      keep_alive: -1
    }
  ],
  "native-generate": [
    { model: "m", prompt: "p", suffix: "s", options, raw: false, context: [1, 2], images: [picture] },
    { model: "other", prompt: "p", system: "s", format: "json", think: true, template: "" }
  ],
  "openai-chat": [
    { model: "m", messages: [message], max_tokens: 10, temperature: 1, stop: "x", stream: true },
    {
      model: "m",
      messages: [
        { role: "developer", content: [{ type: "text", text: "t" }] },
        {
          role: "user",
          content: [{ type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } }]
        },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: '{"a":1}' } }]
        },
        { role: "tool", content: "r", tool_call_id: "c" }
      ],
      tools: [tool],
      tool_choice: { type: "function", function: { name: "f" } },
      response_format: { type: "json_schema", json_schema: { name: "n", schema: { type: "object" } } },
      reasoning_effort: "high",
      max_completion_tokens: 20,
      n: 1,
      stream_options: { include_usage: true }
    }
  ],
  "openai-completions": [
    { model: "m", prompt: "p", suffix: "s", max_tokens: 10, echo: true, logprobs: 2, n: 1, best_of: 1 },
    { model: "other:latest", prompt: ["p"], stop: ["a", "b"], stream: false }
  ],
  messages: [
    { model: "m", max_tokens: 10, messages: [message], stream: true, temperature: 1, stop_sequences: ["x"] },
    {
      model: "m",
      max_tokens: 100_000,
      system: [{ type: "text", text: "x-anthropic-billing-header: a" }],
      messages: [
        { role: "user", content: [{ type: "image", source: { type: "base64", data: picture } }] },
        { role: "assistant", content: [{ type: "tool_use", id: "c", name: "f", input: { a: 1 } }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "c", content: "r", is_error: true }] }
      ],
      tools: [{ name: "f", input_schema: { type: "object" } }],
      tool_choice: { type: "tool", name: "f" },
      thinking: { type: "enabled", budget_tokens: 10 },
      output_config: { format: { type: "json_schema", schema: { type: "object" } } },
      metadata: { user_id: "u" }
    }
  ],
  "native-embed": [{ model: "m", input: ["a", "b"], truncate: true, dimensions: 3, options }],
  "native-embeddings": [{ model: "m", prompt: "p", options }],
  "openai-embeddings": [
    { model: "m", input: ["a", "b"], encoding_format: "base64", dimensions: 3, user: "u" }
  ],
  responses: [
    { model: "m", input: "x", instructions: "i", max_output_tokens: 10, temperature: 1, stream: true },
    {
      model: "m",
      input: [
        { role: "developer", content: [{ type: "input_text", text: "t" }] },
        {
          role: "user",
          content: [{ type: "input_image", image_url: `data:image/png;base64,${picture}` }]
        },
        { type: "reasoning", summary: [{ type: "summary_text", text: "r" }], encrypted_content: "r" },
        { type: "message", role: "assistant", content: [{ type: "output_text", text: "o" }] },
        { type: "function_call", call_id: "c", name: "f", namespace: "n", arguments: '{"a":1}' },
        { type: "function_call_output", call_id: "c", output: "r" },
        { type: "custom_tool_call", call_id: "d", name: "g", input: "i" },
        { type: "custom_tool_call_output", call_id: "d", output: [{ type: "input_text", text: "r" }] },
        { type: "web_search_call", id: "w" }
      ],
      tools: [
        { type: "function", name: "f", description: "d", parameters: { type: "object" } },
        { type: "namespace", name: "n", tools: [{ type: "function", name: "f" }] },
        { type: "web_search" }
      ],
      tool_choice: { type: "function", name: "f" },
      text: { format: { type: "json_schema", name: "n", schema: { type: "object" } } },
      reasoning: { effort: "high", summary: "auto" },
      metadata: { a: "b" }
    }
  ]
}

export const mutatedBody = (surface: Surface, random: Random): Buffer => {
  const tree = treeOf(random.pick(seeds[surface]))
  for (let i = random.int(4); i > 0; i -= 1) mutateTree(tree, random)
  const bytes = Buffer.from(textOf(tree, random))
  return random.chance(4) ? mutateBytes(bytes, random) : bytes
}

export const cap = 65_536
const bounds = { numPredictCap: cap, lowersOutput: false, numCtxCap: undefined, toolsMax: 128 }
const catalog = new Catalog(["m:latest", "other:latest"].map(modelNamed))

const chatKeys = ["model", "stream", "options", "format", "think", "truncate", "logprobs", "top_logprobs"]
const kept = {
  chat: new Set([...chatKeys, "messages", "tools"]),
  generate: new Set([...chatKeys, "prompt", "suffix", "images", "system", "raw", "context"]),
  embed: new Set(["model", "options", "input", "truncate", "dimensions"]),
  embeddings: new Set(["model", "options", "prompt"]),
  show: new Set(["model"]),
  count: new Set<string>()
} satisfies Record<InferenceKind, ReadonlySet<string>>
const keptOptions = new Set([...Object.keys(nativeOptions), "num_predict"])
const keptInMessages = new Set([
  "role",
  "content",
  "thinking",
  "images",
  "tool_calls",
  "tool_name",
  "tool_call_id"
])

const assertKept = (object: JsonObject, allowed: ReadonlySet<string>): void => {
  const keys = Object.keys(object)
  assert.strictEqual(new Set(keys.map(folded)).size, keys.length, "two keys are one to the backend")
  for (const key of keys) assert.isTrue(allowed.has(key), `${key} went upstream`)
}

/** What the backend makes of `raw` is what was decided on. */
const assertUpstream = (raw: string, model: string, kind: InferenceKind, numPredict: number): void => {
  const body: Json = JSON.parse(raw)
  assert.isTrue(isObject(body))
  if (!isObject(body)) return
  assert.strictEqual(JSON.stringify(body), raw, "something is said twice")
  assertKept(body, kept[kind])
  assert.strictEqual(body["model"], model)
  const options = body["options"] ?? {}
  assert.isTrue(isObject(options))
  if (!isObject(options)) return
  assertKept(options, keptOptions)
  if (kind === "chat" || kind === "generate") {
    assert.strictEqual(body["stream"], true)
    assert.strictEqual(options["num_predict"], numPredict)
  } else {
    // Nothing is generated, so there is nothing to bound.
    assert.isUndefined(options["num_predict"])
  }
  const messages = body["messages"]
  if (Array.isArray(messages)) {
    for (const message of messages) {
      assert.isTrue(isObject(message))
      if (isObject(message)) assertKept(message, keptInMessages)
    }
  }
}

/** The shortest answer there is, so that the time goes where it should. */
const brief: Behaviour = {
  does: "answer",
  status: 200,
  contentType: "application/x-ndjson",
  body: `${JSON.stringify({ ...fakeLines.done(), response: "" })}\n`
}

const ask = Effect.fnUntraced(function* (
  fake: FakeBackend,
  model: string,
  request: InferenceRequest,
  numPredict: number
) {
  const backend = yield* Backend
  const permit = permitFor(model, { request: prepared(request), numPredict, plan: noOutput })
  if (request.kind === "embed" || request.kind === "embeddings") {
    yield* backend.embed(permit, uncounted)
    return
  }
  fake.script(brief)
  yield* Effect.scoped(Effect.asVoid(backend.forward(permit, uncounted)))
})

export type Verdict = "unreadable" | "refused" | "forbidden" | "sent"

/** Dies when anything is not as it has to be. */
export const tryBody = Effect.fnUntraced(function* (fake: FakeBackend, surface: Surface, bytes: Uint8Array) {
  const body = parseBody(bytes)
  if (Result.isFailure(body)) {
    assert.match(body.failure, /^body: /)
    return "unreadable" satisfies Verdict
  }
  const decoded = surfaces[surface].decode(body.success, bounds, guards)
  if (Result.isFailure(decoded)) {
    assert.strictEqual(decoded.failure._tag, "BadRequest")
    assert.isAtMost(decoded.failure.detail.length, 400)
    return "refused" satisfies Verdict
  }
  const request = withPromptSize(decoded.success)
  const maxTokens = request.maxTokens ?? cap
  const least = request.kind === "chat" || request.kind === "generate" ? 1 : 0
  assert.isTrue(
    Number.isSafeInteger(maxTokens) && maxTokens >= least && maxTokens <= cap,
    `bound ${maxTokens}`
  )
  assert.isTrue(Number.isSafeInteger(request.promptEstimate) && request.promptEstimate >= 1)
  const model = catalog.find(request.model)
  if (model === undefined) return "forbidden" satisfies Verdict
  const before = fake.requests.length
  yield* ask(fake, model.name, request, maxTokens)
  assert.strictEqual(fake.requests.length, before + 1)
  const sent = fake.requests.at(-1)
  assert.strictEqual(sent?.path, `/api/${request.kind}`)
  assertUpstream(sent?.raw ?? "", model.name, request.kind, maxTokens)
  return "sent" satisfies Verdict
})
