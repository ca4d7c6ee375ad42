/**
 * The request of `POST /v1/responses`, as the chat of `/v1/chat/completions`. Nothing is stored here, so what refers to stored
 * things is a 400 (docs/protocol.md, "Responses requests").
 */
import { Schema } from "effect"
import type { Guards } from "../../../backend/Guards.ts"
import { decide } from "../../../domain/Errors.ts"
import type { DecodedRequest, Json } from "../../../domain/Inference.ts"
import { isObject, present } from "../../../domain/json.ts"
import { Calls } from "../conversation.ts"
import { type Bounds, type RequestDecoder, requestDecoder } from "../Dialect.ts"
import { absentable, AnyObject, boundMaxTokens, Effort, ModelName, thinkOf, wholeIn } from "../fields.ts"
import { endUserClaim, endUserFields } from "../openai/fields.ts"
import type { Body } from "../strictJson.ts"
import { openaiOptions, samplingOf } from "../sampling.ts"
import { unsupported } from "../types.ts"
import { addedTools, boundItems, Input, nativeMessages } from "./input.ts"
import { echoOf } from "./answer.ts"
import { nativeTools, ToolChoice, Tools } from "./tools.ts"

export const Format = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "json_object"]) }),
  Schema.Struct({
    type: Schema.Literal("json_schema"),
    name: absentable(Schema.String),
    schema: AnyObject
  })
])

/** Any int32, because a bound above the cap is lowered. */
const MaxOutputTokens = wholeIn([-(2 ** 31), 2 ** 31]).annotate({ not: { const: 0 } })

/** The bounds of OpenAI. */
const Metadata = Schema.Record(
  Schema.String.check(Schema.isMaxLength(64)),
  Schema.String.check(Schema.isMaxLength(512))
).check(Schema.isMaxProperties(16))

/** Nothing is stored here, so a part of the conversation would be lost unseen. */
const Stored = unsupported("nothing is stored here; send the whole input")

const noLogprobs = "its answers have no log probabilities; /v1/chat/completions has them"

const Responses = Schema.Struct({
  ...endUserFields,
  model: ModelName,
  input: Input,
  instructions: absentable(Schema.String, "a message of the system before the input"),
  stream: absentable(Schema.Boolean, "default false"),
  max_output_tokens: absentable(MaxOutputTokens, "above NUM_PREDICT_CAP it is lowered to it"),
  temperature: openaiOptions.temperature,
  top_p: openaiOptions.top_p,
  presence_penalty: openaiOptions.presence_penalty,
  frequency_penalty: openaiOptions.frequency_penalty,
  tools: absentable(Tools, "what the model may call"),
  tool_choice: absentable(
    ToolChoice,
    "`none` sends no tools, names send only those; a call cannot be forced"
  ),
  text: absentable(
    Schema.Struct({ format: absentable(Format) }),
    "JSON, or a JSON schema that the answer has to follow"
  ),
  reasoning: absentable(
    Schema.Struct({ effort: absentable(Effort), summary: absentable(Schema.String) }),
    "`effort` is left out for a model that cannot reason; `summary` has no effect"
  ),
  metadata: absentable(Metadata, "comes back in the answer"),
  prompt_cache_key: absentable(Schema.String, "comes back in the answer"),
  parallel_tool_calls: absentable(Schema.Boolean, "comes back in the answer, and has no effect"),
  previous_response_id: Stored,
  conversation: Stored,
  prompt: Stored,
  background: unsupported("no answer is kept for later; leave it out", Schema.Literal(false)),
  moderation: unsupported("nothing is moderated here; leave it out"),
  top_logprobs: unsupported(noLogprobs, Schema.Literal(0)),
  // Answers have the text of their reasoning anyway, and nothing else that is asked for here.
  include: unsupported(
    noLogprobs,
    Schema.Array(Schema.String).check(
      Schema.isMaxLength(64),
      Schema.makeFilter((parts) => !parts.includes("message.output_text.logprobs"))
    )
  ),
  truncation: absentable(
    Schema.Literals(["auto", "disabled"]),
    "whether a prompt that is too long is cut; the default is the model server's"
  )
})

type Responses = typeof Responses.Type

const formatOf = (format: typeof Format.Type | null | undefined): Json | undefined =>
  format?.type === "json_schema" ? format.schema : format?.type === "json_object" ? "json" : undefined

const decoder = requestDecoder(
  Responses,
  decide(function* (request: Responses, bounds: Bounds) {
    // Agents ask for more than they need.
    const bound = yield* boundMaxTokens(
      "max_output_tokens",
      request.max_output_tokens,
      bounds.numPredictCap,
      true
    )
    const made = new Calls()
    const messages = yield* nativeMessages(request.input, request.instructions, made)
    const tools = [...(request.tools ?? []), ...addedTools(request.input)]
    return {
      kind: "chat",
      model: request.model,
      ...endUserClaim(request),
      stream: request.stream ?? false,
      body: present({
        messages,
        tools: yield* nativeTools(tools, request.tool_choice, made, bounds.toolsMax),
        format: formatOf(request.text?.format),
        think: thinkOf(request.reasoning?.effort),
        truncate: request.truncation && request.truncation === "auto"
      }),
      options: samplingOf(request),
      thinkIfAble: true,
      ...bound
    } satisfies DecodedRequest
  }),
  { schema: "text.format.schema", toolSchema: "parameters" }
)

export const responsesRequest: RequestDecoder = {
  accepts: Responses,
  decode: decide(function* (body: Body, bounds: Bounds, guards: Guards) {
    yield* boundItems(body)
    const request = yield* decoder.decode(body, bounds, guards)
    return isObject(body.json) ? { ...request, echoed: echoOf(body.json, request.maxTokens) } : request
  })
}
