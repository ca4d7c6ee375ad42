/** `openapi.json` is made of the code. Here the code is compared with what it says: what dialects accept and write. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { decodeShow } from "../../../src/backend/ollama/decodeShow.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import type { Json } from "../../../src/domain/Inference.ts"
import type { Decode, Dialect } from "../../../src/http/dialect/Dialect.ts"
import {
  nativeChat,
  nativeEmbed,
  nativeEmbeddings,
  nativeGenerate,
  nativeShow
} from "../../../src/http/dialect/native/dialect.ts"
import { openaiChat, openaiCompletions, openaiEmbeddings } from "../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../src/http/dialect/responses/dialect.ts"
import { generated } from "../../../build/openapi/generated.ts"
import { routes } from "../../../src/http/routes.ts"
import { version } from "../../../src/version.ts"
import { invalidity, objection, openapi, openapiFile } from "../../support/openapi.ts"
import { picture } from "../../support/pictures.ts"
import { cap, decoding } from "./decoding.ts"

const operations = Object.entries(openapi.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation }))
)

for (const { file, text } of generated()) {
  it(`when ${path.basename(file)} is made anew, then it is as it stands (else: npm run openapi)`, () => {
    assert.strictEqual(readFileSync(file, "utf8"), text)
  })
}

it("when it is read by OpenAPI's own schema, then it is a valid document of version 3.1", () => {
  assert.strictEqual(invalidity(), "")
})

it("when a route is in the table, then it is in the document, and no other is", () => {
  assert.sameMembers(
    operations.map(({ name }) => name),
    routes.map(({ method, path }) => `${method} ${path}`)
  )
  assert.strictEqual(
    new Set(operations.map(({ operation }) => operation.operationId)).size,
    operations.length
  )
  assert.strictEqual(openapi.info.version, version)
})

it("when something is referred to, then it is there; and nothing is there that is not referred to", () => {
  const referred = new Set(
    [...openapiFile.matchAll(/"\$ref":\s*"#\/components\/([^"]+)"/g)].map(([, to]) => to)
  )
  const there = Object.entries(openapi.components).flatMap(([kind, entries]) =>
    Object.keys(entries).map((name) => `${kind}/${name}`)
  )
  assert.sameMembers([...referred], there)
})

it("when an error is shown as an example, then it has the shape of errors", () => {
  const examples = Object.entries(openapi.components.responses).flatMap(([name, response]) =>
    Object.values(response.content["application/json"].examples).map(({ value }) => ({ name, value }))
  )
  assert.isAtLeast(examples.length, 24)
  for (const { name, value } of examples)
    assert.strictEqual(objection(name.startsWith("Messages") ? "MessagesError" : "Error", value), "")
  const { error = {}, request_id = "" } = examples[0]?.value ?? {}
  assert.include(objection("Error", { error: { ...error, code: "400" }, request_id }), "code")
  assert.include(objection("Error", { error: { ...error, cause: "x" }, request_id }), "additional")
})

const user = { role: "user", content: "Hello" }
const png = `data:image/png;base64,${picture}`
const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } }

/** What both the document and the dialect say yes to, and what both refuse. */
const samples: ReadonlyArray<
  readonly [string, { readonly decode: Decode }, ReadonlyArray<Json>, ReadonlyArray<Json>]
> = [
  [
    "NativeChatRequest",
    nativeChat,
    [
      { model: "m" },
      { model: "m", messages: [user], stream: null, unknown: 1 },
      { model: "m", messages: [{ role: "assistant", tool_calls: [{ function: { name: "f" } }] }] },
      { model: "m", format: "json", think: "high", options: { num_predict: cap, num_gpu: "x" } },
      { model: "m", format: { type: "object" }, think: true, options: { num_predict: -1, stop: ["a"] } }
    ],
    [
      {},
      { model: "" },
      { model: 1 },
      { model: "m", stream: "true" },
      { model: "m", messages: [{ role: "x".repeat(65), content: "x" }] },
      { model: "m", messages: [{ role: "user", content: [{ type: "text", text: "x" }] }] },
      { model: "m", messages: [{ ...user, images: [png] }] },
      { model: "m", format: "xml" },
      { model: "m", format: [] },
      { model: "m", think: "extreme" },
      { model: "m", top_logprobs: 21 },
      { model: "m", options: { num_predict: 0 } },
      { model: "m", options: { repeat_last_n: 1_500_000_000 } },
      { model: "m", options: { frequency_penalty: -1e38 } },
      { model: "m", options: { seed: 1e19 } },
      { model: "m", options: { stop: ["x".repeat(257)] } },
      { model: "m", options: { num_predict: cap + 1 } },
      { model: "m", options: { num_predict: 1.5 } },
      { model: "m", options: { stop: "a" } },
      { model: "m", options: { temperature: "hot" } }
    ]
  ],
  [
    "NativeGenerateRequest",
    nativeGenerate,
    [{ model: "m" }, { model: "m", prompt: "Hi", suffix: "x", context: [1, 2], template: "", raw: false }],
    [
      { prompt: "x" },
      { model: "m", template: "{{ .System }}" },
      { model: "m", context: [-1] },
      { model: "m", raw: 1 }
    ]
  ],
  [
    "ChatCompletionRequest",
    openaiChat,
    [
      { model: "m", messages: [user] },
      { model: "m", messages: [{ role: "developer", content: [{ type: "text", text: "x" }] }], user: "u" },
      { model: "m", messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: png } }] }] },
      { model: "m", messages: [user, { role: "assistant", content: null, tool_calls: [call] }], n: 1 },
      { model: "m", messages: [{ role: "assistant", content: null }] },
      { model: "m", messages: [user], stop: "a", max_tokens: cap, reasoning_effort: "xhigh" },
      { model: "m", messages: [user], max_tokens: -1, seed: 1.5, stream_options: { include_usage: null } },
      { model: "m", messages: [user], response_format: { type: "json_schema", json_schema: { schema: {} } } },
      { model: "m", messages: [user], tool_choice: "none", max_completion_tokens: 1 }
    ],
    [
      { model: "m" },
      { model: "m", messages: [] },
      { model: "m", messages: [{ role: "user" }] },
      { model: "m", messages: [{ role: "user", content: null, tool_calls: [] }] },
      {
        model: "m",
        messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "http://x/y.png" } }] }]
      },
      { model: "m", messages: [user], n: 2 },
      { model: "m", messages: [user], max_tokens: 0 },
      { model: "m", messages: [user], temperature: -1 },
      { model: "m", messages: [user], stream_options: { include_usage: 1 } },
      { model: "m", messages: [user], max_completion_tokens: cap + 1 },
      { model: "m", messages: [user], stop: ["a", 1] },
      { model: "m", messages: [user], response_format: { type: "json_schema" } },
      { model: "m", messages: [user], tools: [{ type: "retrieval" }] },
      { model: "m", messages: [user], modalities: ["audio"] }
    ]
  ],
  [
    "ResponseRequest",
    responses,
    [
      { model: "m", input: "Hi" },
      { model: "m", input: [user, { type: "web_search_call", id: "x" }], max_output_tokens: 10 * cap },
      { model: "m", input: [{ role: "user", content: [{ type: "input_image", image_url: png }] }] },
      { model: "m", input: [{ type: "function_call", call_id: "c", name: "f", arguments: "{}" }] },
      { model: "m", input: "Hi", tools: [{ type: "web_search" }, { type: "function", name: "f" }] },
      { model: "m", input: "Hi", text: { format: { type: "json_schema", name: "n", schema: {} } } }
    ],
    [
      { model: "m" },
      { model: "m", input: 1 },
      { model: "m", input: [{ role: "robot", content: "x" }] },
      { model: "m", input: [{ type: "function_call", call_id: "c" }] },
      { model: "m", input: [{ role: "user", content: [{ type: "input_file", file_id: "f" }] }] },
      { model: "m", input: "Hi", max_output_tokens: 0 },
      { model: "m", input: "Hi", tools: [{ type: "function" }] },
      { model: "m", input: "Hi", reasoning: { effort: "huge" } }
    ]
  ],
  [
    "CompletionRequest",
    openaiCompletions,
    [
      { model: "m", prompt: "Hi" },
      { model: "m", prompt: ["Hi"], logprobs: 5, best_of: 1, echo: true }
    ],
    [
      { model: "m" },
      { model: "m", prompt: "" },
      { model: "m", prompt: ["a", "b"] },
      { model: "m", prompt: [1] },
      { model: "m", prompt: "Hi", best_of: 2 },
      { model: "m", prompt: "Hi", logprobs: 6 }
    ]
  ],
  [
    "EmbedRequest",
    nativeEmbed,
    [
      { model: "m", input: "a" },
      { model: "m", input: ["a", ""], truncate: false, dimensions: 0 },
      { model: "m", input: [] },
      { model: "m", input: null }
    ],
    [
      { input: "a" },
      { model: "m", input: [1] },
      { model: "m", input: [["a"]] },
      { model: "m", dimensions: "8" },
      { model: "m", options: { num_predict: cap + 1 } }
    ]
  ],
  [
    "EmbeddingsRequest",
    nativeEmbeddings,
    [{ model: "m", prompt: "a" }, { model: "m" }],
    [{ prompt: "a" }, { model: "m", prompt: ["a"] }]
  ],
  [
    "EmbeddingRequest",
    openaiEmbeddings,
    [
      { model: "m", input: "a" },
      { model: "m", input: ["a", "b"], encoding_format: "base64", dimensions: 8, user: "u" }
    ],
    [
      { model: "m" },
      { model: "m", input: [] },
      { model: "m", input: [1, 2] },
      { model: "m", input: "a", encoding_format: "int8" },
      { model: "m", input: "a", dimensions: 0 }
    ]
  ],
  [
    "ShowRequest",
    nativeShow,
    [{ model: "m" }, { name: "m" }, { model: "", name: "m" }, { model: "m", verbose: true }],
    [{}, { model: "" }, { model: null }, { model: 1 }]
  ]
]

for (const [schema, dialect, good, bad] of samples) {
  it(`when ${schema} is compared with the endpoint, then both accept and refuse the same bodies`, () => {
    const { accepted, refused } = decoding(dialect)
    for (const body of good) {
      accepted(body)
      assert.strictEqual(objection(schema, body), "", JSON.stringify(body))
    }
    for (const body of bad) {
      assert.notStrictEqual(refused(body), "accepted", JSON.stringify(body))
      assert.notStrictEqual(objection(schema, body), "", JSON.stringify(body))
    }
  })
}

const frames: readonly [Frame, ...ReadonlyArray<Frame>] = [
  { createdAt: "2026-01-01T00:00:00Z", text: "Hi", thinking: "hm", done: false },
  {
    createdAt: "2026-01-01T00:00:00Z",
    text: "",
    toolCalls: [{ name: "f", arguments: { a: 1 } }],
    logprobs: [{ token: "a", logprob: -1 }],
    done: false
  },
  {
    createdAt: "2026-01-01T00:00:00Z",
    text: "",
    done: true,
    doneReason: "stop",
    totalDuration: 5,
    promptEvalCount: 7,
    evalCount: 3
  }
]

const answers: ReadonlyArray<readonly [Dialect, Json, piece: string, whole: string]> = [
  [nativeChat, { model: "m" }, "NativeChatFrame", "NativeChatFrame"],
  [nativeGenerate, { model: "m" }, "NativeGenerateFrame", "NativeGenerateFrame"],
  [openaiChat, { model: "m", messages: [user] }, "ChatCompletionChunk", "ChatCompletion"],
  [openaiCompletions, { model: "m", prompt: "Hi" }, "Completion", "Completion"],
  [responses, { model: "m", input: "Hi" }, "ResponseEvent", "Response"],
  [
    openaiChat,
    { model: "m", messages: [user], stream_options: { include_usage: true } },
    "ChatCompletionChunk",
    "ChatCompletion"
  ]
]

it("when Embed, Embeddings and EmbeddingList are compared with the answers, then they describe them", () => {
  const answer = {
    vectors: [[0.5, -1]],
    totalDuration: 5,
    promptEvalCount: 4
  }
  for (const [dialect, body, schema] of [
    [nativeEmbed, { model: "m", input: "a" }, "Embed"],
    [nativeEmbeddings, { model: "m", prompt: "a" }, "Embeddings"],
    [openaiEmbeddings, { model: "m", input: "a" }, "EmbeddingList"],
    [openaiEmbeddings, { model: "m", input: "a", encoding_format: "base64" }, "EmbeddingList"]
  ] as const) {
    const said = [dialect.encode(decoding(dialect).accepted(body), answer)].flat().map(String).join("")
    assert.strictEqual(objection(schema, JSON.parse(said)), "", said)
  }
  const shown = decodeShow(
    '{"details":{},"license":"MIT","system":"x","template":"y","capabilities":["completion"]}'
  )
  assert.strictEqual(objection("Show", shown), "")
})

for (const [dialect, body, piece, whole] of answers) {
  it(`when the endpoint answers ${JSON.stringify(body)}, then ${piece} and ${whole} describe it`, () => {
    const encoder = dialect.encoder(decoding(dialect).accepted(body), { requestId: "r", seal: (ids) => ids })
    const said = encoder
      .frames(frames)
      .split("\n")
      .map((line) => line.replace(/^data: |^event: .*/, ""))
      .filter((line) => line !== "" && line !== "[DONE]")
    assert.isAtLeast(said.length, 2)
    for (const line of said) assert.strictEqual(objection(piece, JSON.parse(line)), "", line)
    const [, , last] = frames
    const folded = { ...frames[1], ...last, text: "Hi" }
    assert.strictEqual(objection(whole, encoder.object({ createdAt: "", done: true, ...folded })), "")
  })
}
