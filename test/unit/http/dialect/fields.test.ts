/** What becomes of each field of a request: the table of docs/protocol.md, against the decoders and the vendors' schemas. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { type FieldPlace, fatesOf, fieldPlaces } from "../../../../build/openapi/fields.ts"
import type { Json, JsonObject } from "../../../../src/domain/Inference.ts"
import * as messages from "../../../../src/http/dialect/messages/dialect.ts"
import * as native from "../../../../src/http/dialect/native/dialect.ts"
import * as openai from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { picture } from "../../../support/pictures.ts"
import { decoding } from "../decoding.ts"

const modules = path.resolve(import.meta.dirname, "../../../../node_modules")

/** The fields of interfaces in the declarations of a package. */
const published = (file: string, ...interfaces: ReadonlyArray<string>): ReadonlyArray<string> => {
  const text = readFileSync(path.join(modules, `${file}.d.ts`), "utf8")
  return interfaces.flatMap((name) => {
    const body = new RegExp(`\\n(?:export )?interface ${name} \\{([^]*?)\\n\\}`).exec(text)?.[1] ?? ""
    return [...body.matchAll(/\n {4}(\w+)\??:/g)].map(([, field]) => field ?? "")
  })
}

const completions = "openai/resources/chat/completions/completions"
const inResponses = "openai/resources/responses/responses"
const ofRole = ["Developer", "System", "User", "Assistant", "Tool", "Function"]

/** What Anthropic's SDK has (`@anthropic-ai/sdk` 1.12.0, beta included), and what it had. */
const counted =
  "messages model billing_policy cache_control compaction context_management mcp_servers output_config output_format speed system thinking thread tool_choice tools betas user_profile_id workspace_id"
const anthropic = `${counted} max_tokens container diagnostics fallback_credit_token fallbacks inference_geo metadata service_tier stop_sequences stream temperature top_k top_p`

/** What Ollama has (`api/types.go` of 0.33.3), and what 0.24.0 had. */
const generates =
  "model stream format keep_alive options think truncate shift _debug_render_only logprobs top_logprobs"
const ofRunner = "num_ctx num_batch num_gpu main_gpu use_mmap num_thread draft_num_predict"
const ollama = (name: string): ReadonlyArray<string> => published("ollama/dist/browser", name)

const vendors: { readonly [place: string]: ReadonlyArray<string> } = {
  "/v1/chat/completions ": published(completions, "ChatCompletionCreateParamsBase"),
  "/v1/chat/completions messages": published(
    completions,
    ...ofRole.map((role) => `ChatCompletion${role}MessageParam`)
  ),
  "/v1/chat/completions stream_options": published(completions, "ChatCompletionStreamOptions"),
  "/v1/completions ": published("openai/resources/completions", "CompletionCreateParamsBase"),
  "/v1/completions stream_options": published(completions, "ChatCompletionStreamOptions"),
  "/v1/embeddings ": published("openai/resources/embeddings", "EmbeddingCreateParams"),
  "/v1/responses ": published(inResponses, "ResponseCreateParamsBase"),
  "/v1/responses text": published(inResponses, "ResponseTextConfig"),
  "/v1/responses reasoning": published("openai/resources/shared", "Reasoning"),
  "/v1/messages ": anthropic.split(" "),
  "/v1/messages output_config": ["effort", "format", "task_budget"],
  "/v1/messages tool_choice": ["type", "name", "disable_parallel_tool_use"],
  "/v1/messages/count_tokens ": counted.split(" "),
  "/v1/messages/count_tokens output_config": ["effort", "format", "task_budget"],
  "/api/chat ": [...ollama("ChatRequest"), ...`${generates} messages tools`.split(" ")],
  "/api/chat messages": [...ollama("Message"), "tool_call_id"],
  "/api/chat options": [...ollama("Options"), ...ofRunner.split(" ")],
  "/api/generate ": [
    ...ollama("GenerateRequest"),
    ...`${generates} prompt suffix system template context raw images`.split(" ")
  ],
  "/api/embed ": ollama("EmbedRequest"),
  "/api/embeddings ": ollama("EmbeddingsRequest"),
  "/api/show ": [...ollama("ShowRequest"), "name", "verbose"]
}

const decoders: { readonly [path: string]: ReturnType<typeof decoding> } = {
  "/v1/chat/completions": decoding(openai.openaiChat),
  "/v1/completions": decoding(openai.openaiCompletions),
  "/v1/embeddings": decoding(openai.openaiEmbeddings),
  "/v1/responses": decoding(responses),
  "/v1/messages": decoding(messages.messages),
  "/v1/messages/count_tokens": decoding(messages.messagesCount),
  "/api/chat": decoding(native.nativeChat),
  "/api/generate": decoding(native.nativeGenerate),
  "/api/embed": decoding(native.nativeEmbed),
  "/api/embeddings": decoding(native.nativeEmbeddings),
  "/api/show": decoding(native.nativeShow)
}

const functionOf = (name: string): JsonObject => ({ type: "function", name, function: { name } })
const tools = [functionOf("f"), functionOf("qzqz")]
const named = [{ name: "f" }, { name: "qzqz" }]
const said = [{ role: "user", content: "a" }]
const schema = {
  type: "json_schema",
  schema: { type: "object" },
  json_schema: { schema: { type: "object" } }
}

/** A request to add a field to. */
const bodies: { readonly [path: string]: JsonObject } = {
  "/v1/chat/completions": { model: "m", messages: said, tools },
  "/v1/completions": { model: "m", prompt: "a" },
  "/v1/embeddings": { model: "m", input: "a" },
  "/v1/responses": { model: "m", input: "a", tools },
  "/v1/messages": { model: "m", max_tokens: 8, messages: said, tools: named },
  "/v1/messages/count_tokens": { model: "m", messages: said, tools: named },
  "/api/chat": { model: "m", messages: said },
  "/api/generate": { model: "m", prompt: "a" },
  "/api/embed": { model: "m", input: "a" },
  "/api/embeddings": { model: "m", prompt: "a" },
  "/api/show": {}
}

/** What a field may say. For each there is one that asks for something. */
const values: ReadonlyArray<Json> = [
  "qzqz",
  "none",
  "low",
  "auto",
  "disabled",
  "json",
  "base64",
  "tool",
  "detailed",
  picture,
  true,
  false,
  3,
  0.5,
  ["qzqz"],
  [3],
  [picture],
  schema,
  [{ role: "user", content: "qzqz" }],
  [functionOf("g")],
  [{ name: "g" }],
  {},
  { x: 1 },
  { seed: 3 },
  { effort: "low" },
  { format: schema },
  { include_usage: true },
  { enable_thinking: false },
  { type: "enabled" },
  { type: "none" },
  { type: "tool", name: "f" },
  { name: "f", arguments: "{}" },
  { user_id: "qzqz" },
  { function: { name: "f" } },
  [{ id: "c", function: { name: "f" } }],
  "user",
  ["message.output_text.logprobs"]
]

/** Requests without the field, each with the one that has it. */
const pairs = ({ path: on, within }: FieldPlace, name: string): ReadonlyArray<readonly [Json, Json]> => {
  const body = bodies[on] ?? {}
  const around: ReadonlyArray<readonly [JsonObject, (inner: JsonObject) => JsonObject]> =
    within === ""
      ? [[{}, (inner) => ({ ...body, ...inner })]]
      : within === "messages"
        ? ["user", "assistant", "tool", "function"].flatMap((role) =>
            [{ role, content: "a" }, { role }].map(
              (message) => [message, (inner: JsonObject) => ({ ...body, messages: [inner] })] as const
            )
          )
        : [{}, { type: "tool" }].map(
            (inner) => [inner, (more: JsonObject) => ({ ...body, [within]: more })] as const
          )
  return around.flatMap(([inner, whole]) =>
    values.map((value) => [whole(inner), whole({ ...inner, [name]: value })] as const)
  )
}

describe("fields of requests", () => {
  for (const place of fieldPlaces) {
    const { path: on, within } = place
    const fates = fatesOf(place)
    const where = `${within === "" ? "the body" : within} of ${on}`

    it(`when a vendor publishes a field of ${where}, then the table has it`, () => {
      const known = vendors[`${on} ${within}`] ?? []
      assert.isAtLeast(known.length, 1)
      assert.deepStrictEqual(
        known.filter((name) => !fates.has(name)),
        []
      )
    })

    for (const [name, fate] of fates)
      it(`when ${name} is in ${where}, then it is ${fate?.is ?? "read"}`, () => {
        const { refused, decoded } = decoders[on] ?? decoding(native.nativeChat)
        const become = (body: Json): string => {
          const request = decoded(body)
          return request._tag === "Failure" ? request.failure.detail : JSON.stringify(request.success)
        }
        const tried = pairs(place, name)
        if (fate?.is === "refused")
          assert.isTrue(
            tried.some(([, body]) => refused(body).endsWith(`${name}: ${fate.why}`)),
            tried.map(([, body]) => refused(body)).join("\n")
          )
        else if (fate?.is === "left out") {
          // What comes back in the answer does not reach the model.
          const unseen = (body: Json) => become(body).replace(/"echoed":\{[^}]*\}/, "")
          for (const [without, body] of tried) assert.strictEqual(unseen(body), unseen(without))
        } else
          assert.isTrue(
            tried.some(([without, body]) => become(body) !== become(without) && refused(body) === "accepted")
          )
      })
  }
})
