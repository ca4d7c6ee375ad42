/**
 * The shapes of all answers, for `openapi.json`. Encoders write the answers by hand, because they write each frame of
 * a stream. `test/unit/http/openapi.test.ts` compares their output with these schemas.
 */
import { Schema } from "effect"
import { shownTexts } from "../../src/backend/ollama/decodeModels.ts"
import { systemFingerprint } from "../../src/http/dialect/openai/answer.ts"
import { constants } from "../../src/http/dialect/responses/answer.ts"

const optional = Schema.optionalKey

export const Text = Schema.String
const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Nanoseconds = Count.annotate({ description: "nanoseconds" })
const Seconds = Schema.Int.annotate({ description: "unix seconds" })
const Written = Schema.String.annotate({ description: "as the client wrote it" })
const Objects = Schema.Array(Schema.JsonObject)
const Numbers = Schema.Array(Schema.Finite)
const Zero = Schema.Literal(0)

/** An object that its `type` tells from others. */
const typed = <const T extends string, F extends Schema.Struct.Fields>(type: T, fields: F) =>
  Schema.Struct({ type: Schema.Literal(type), ...fields })

const ContextLength = Count.annotate({
  description:
    "tokens of prompt and answer together, for a request that asks for no other window; absent where the gateway does not know them"
})

// The native surface

const nativeCounts = {
  total_duration: optional(Nanoseconds),
  load_duration: optional(Nanoseconds),
  prompt_eval_count: optional(Count),
  prompt_eval_cached_count: optional(Count),
  prompt_eval_duration: optional(Nanoseconds),
  eval_count: optional(Count),
  eval_duration: optional(Nanoseconds)
}

/** What a model writes beside its text. */
const besideText = {
  thinking: optional(Text),
  tool_calls: optional(
    Schema.Array(
      Schema.Struct({
        id: optional(Text),
        function: Schema.Struct({ index: Count, name: Text, arguments: Schema.JsonObject })
      })
    )
  )
}

const nativeFrame = {
  model: Written,
  created_at: Schema.String.annotate({ format: "date-time" }),
  done: Schema.Boolean,
  done_reason: optional(Schema.Literals(["stop", "length", "load", "unload"])),
  logprobs: optional(Objects),
  ...nativeCounts
}

const oneLine = "One line of the stream; with `stream: false` the whole answer, `done` true."

export const NativeChatFrame = Schema.Struct({
  ...nativeFrame,
  message: Schema.Struct({ role: Schema.Literal("assistant"), content: Text, ...besideText })
}).annotate({ description: oneLine })

export const NativeGenerateFrame = Schema.Struct({
  ...nativeFrame,
  response: Text,
  ...besideText,
  context: optional(
    Schema.Array(Count).annotate({ description: "to send back; sealed for this key and model" })
  )
}).annotate({ description: oneLine })

export const NativeStreamError = Schema.Struct({ error: Text }).annotate({
  description: "The last line of a stream that failed after its first frame."
})

export const Embed = Schema.Struct({
  model: Written,
  embeddings: Schema.Array(Numbers),
  total_duration: optional(Nanoseconds),
  load_duration: optional(Nanoseconds),
  prompt_eval_count: optional(Count)
})

export const Embeddings = Schema.Struct({ embedding: Numbers })

export const Show = Schema.Struct({
  ...Object.fromEntries(shownTexts.map((name) => [name, optional(Text)])),
  details: Schema.JsonObject,
  model_info: Schema.JsonObject,
  projector_info: optional(Schema.JsonObject),
  context_length: optional(ContextLength),
  tensors: optional(Objects),
  capabilities: Schema.Array(Text)
}).annotate({
  description: "Without system prompt, template, modelfile and messages.",
  additionalProperties: false
})

export const Tags = Schema.Struct({
  models: Schema.Array(
    Schema.Struct({
      name: Text,
      model: Text,
      modified_at: Text,
      size: Schema.Int,
      digest: Text,
      details: Schema.JsonObject,
      capabilities: optional(Schema.Array(Text))
    })
  )
})

export const Version = Schema.Struct({
  version: Schema.String.annotate({ description: "the gateway's own" })
})

export const KeyUsage = Schema.Struct({
  timezone: Schema.String.annotate({ description: "whose days they are, as `TIMEZONE`" }),
  since: Schema.String.annotate({
    description: "the first day that is read, such as 2026-11-23; 30 days ago"
  }),
  truncated: Schema.Boolean.annotate({
    description: "whether the oldest rows are left out: there are at most 1000"
  }),
  usage: Schema.Array(
    Schema.Struct({ day: Text, model: Text, requests: Count, tokens_in: Count, tokens_out: Count })
  ).annotate({
    description:
      "of the key and those that it replaces or that replace it: the newest day first, in a day the largest use"
  })
})

// The OpenAI surface

export const Usage = Schema.Struct({
  prompt_tokens: Count,
  completion_tokens: Count,
  total_tokens: Count,
  prompt_tokens_details: optional(
    Schema.Struct({
      cached_tokens: Count.annotate({
        description: "of prompt_tokens: what the model server had in its prefix cache, when it says so"
      })
    })
  )
})

const Arguments = Text.annotate({ description: "a JSON object as text" })
const calledFunction = {
  id: Text,
  type: Schema.Literal("function"),
  function: Schema.Struct({ name: Text, arguments: Arguments })
}

const openaiId = (prefix: string) => Schema.String.check(Schema.isStartingWith(`${prefix}-`))

const completion = {
  created: Seconds,
  model: Written,
  system_fingerprint: Schema.Literal(systemFingerprint)
}

const ChatLogprobs = Schema.Struct({ content: Objects, refusal: Schema.Null })

export const ChatCompletion = Schema.Struct({
  id: openaiId("chatcmpl"),
  object: Schema.Literal("chat.completion"),
  ...completion,
  choices: Schema.Array(
    Schema.Struct({
      index: Zero,
      message: Schema.Struct({
        role: Schema.Literal("assistant"),
        content: Schema.NullOr(Text),
        reasoning: optional(Text),
        tool_calls: optional(Schema.Array(Schema.Struct(calledFunction)))
      }),
      logprobs: optional(ChatLogprobs),
      finish_reason: Schema.Literals(["stop", "length", "tool_calls"])
    })
  ).check(Schema.isBetweenLength(1, 1)),
  usage: Usage
})

const ChatChoice = Schema.Struct({
  index: Zero,
  delta: Schema.Struct({
    role: optional(Schema.Literal("assistant")),
    content: optional(Text),
    reasoning: optional(Text),
    tool_calls: optional(Schema.Array(Schema.Struct({ index: Count, ...calledFunction })))
  }),
  logprobs: optional(ChatLogprobs),
  finish_reason: Schema.NullOr(Schema.Literals(["stop", "length", "tool_calls"]))
})

export const ChatCompletionChunk = Schema.Struct({
  id: openaiId("chatcmpl"),
  object: Schema.Literal("chat.completion.chunk"),
  ...completion,
  choices: Schema.Array(ChatChoice).check(Schema.isMaxLength(1)),
  usage: optional(Usage)
}).annotate({
  description:
    "The data of one event. The last one has an empty delta, finish_reason and usage; `data: [DONE]` follows. With stream_options.include_usage the last one has no choices, and the usage instead of the one before. A stream that failed ends with an event of the Error shape instead."
})

const TextChoice = Schema.Struct({
  text: Text,
  index: Zero,
  logprobs: Schema.NullOr(Schema.JsonObject),
  finish_reason: Schema.NullOr(Schema.Literals(["stop", "length"]))
})

export const Completion = Schema.Struct({
  id: openaiId("cmpl"),
  object: Schema.Literal("text_completion"),
  ...completion,
  choices: Schema.Array(TextChoice).check(Schema.isMaxLength(1)),
  usage: optional(Usage)
}).annotate({
  description:
    "The whole answer, or the data of one event; the last event has finish_reason and usage, or, with stream_options.include_usage, usage and no choices."
})

const EmbeddingEntry = Schema.Struct({
  object: Schema.Literal("embedding"),
  index: Count,
  embedding: Schema.Union([Numbers, Text])
})

export const EmbeddingList = Schema.Struct({
  object: Schema.Literal("list"),
  model: Written,
  data: Schema.Array(EmbeddingEntry),
  usage: Schema.Struct({ prompt_tokens: Count, total_tokens: Count })
})

export const ModelEntry = Schema.Struct({
  id: Text,
  object: Schema.Literal("model"),
  created: Seconds,
  owned_by: Schema.Literal("tollgate"),
  context_length: optional(ContextLength)
})

export const ModelList = Schema.Struct({
  object: Schema.Literal("list"),
  data: Schema.Array(ModelEntry)
})

/** What Anthropic's clients get of the same two paths. */
export const MessagesModelEntry = typed("model", {
  id: Text,
  display_name: Text,
  created_at: Schema.String.annotate({ format: "date-time" }),
  max_input_tokens: Schema.NullOr(ContextLength),
  max_tokens: Schema.Null,
  capabilities: Schema.Null
})

export const MessagesModelList = Schema.Struct({
  data: Schema.Array(MessagesModelEntry),
  has_more: Schema.Literal(false),
  first_id: Schema.NullOr(Text),
  last_id: Schema.NullOr(Text)
}).annotate({ description: "All models are one page." })

// Responses

const OutputText = typed("output_text", { text: Text, annotations: Objects, logprobs: Objects })
const SummaryText = typed("summary_text", { text: Text })

const itemStatus = Schema.Literals(["in_progress", "completed", "incomplete"])

const OutputItem = Schema.Union([
  typed("reasoning", {
    id: Text,
    summary: Schema.Array(SummaryText),
    encrypted_content: optional(
      Text.annotate({ description: "the same text, for clients that send only this back" })
    )
  }),
  typed("message", {
    id: Text,
    status: itemStatus,
    role: Schema.Literal("assistant"),
    content: Schema.Array(OutputText)
  }),
  typed("function_call", {
    id: Text,
    status: itemStatus,
    call_id: Text,
    name: Text,
    namespace: optional(Text),
    arguments: Arguments
  }),
  typed("custom_tool_call", {
    id: Text,
    status: itemStatus,
    call_id: Text,
    name: Text,
    namespace: optional(Text),
    input: Text
  })
])

const ResponseUsage = Schema.Struct({
  input_tokens: Count,
  input_tokens_details: Schema.Struct({ cached_tokens: Count }),
  output_tokens: Count,
  output_tokens_details: Schema.Struct({ reasoning_tokens: Zero }),
  total_tokens: Count
})

export const Response = Schema.Struct({
  id: Schema.String.check(Schema.isStartingWith("resp_")),
  object: Schema.Literal("response"),
  created_at: Seconds,
  completed_at: Schema.NullOr(Seconds),
  status: Schema.Literals(["in_progress", "completed", "incomplete", "failed"]),
  error: Schema.NullOr(
    Schema.Struct({
      code: Schema.Literals([
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_prompt",
        "rate_limit_exceeded",
        "server_error"
      ]),
      message: Text
    })
  ),
  incomplete_details: Schema.NullOr(Schema.Struct({ reason: Schema.Literal("max_output_tokens") })),
  model: Written,
  output: Schema.Array(OutputItem),
  usage: Schema.NullOr(ResponseUsage),
  // As the client sent them, or their defaults.
  frequency_penalty: Schema.Finite,
  instructions: Schema.NullOr(Text),
  max_output_tokens: Schema.NullOr(Count),
  metadata: Schema.JsonObject,
  parallel_tool_calls: Schema.Boolean,
  presence_penalty: Schema.Finite,
  prompt_cache_key: Schema.NullOr(Text),
  reasoning: Schema.NullOr(Schema.JsonObject),
  safety_identifier: Schema.NullOr(Text),
  temperature: Schema.Finite,
  text: Schema.JsonObject,
  tool_choice: Schema.Union([Text, Schema.JsonObject]),
  tools: Objects,
  top_p: Schema.Finite,
  truncation: Schema.Literals(["auto", "disabled"]),
  ...Object.fromEntries(
    Object.entries(constants).map(([name, value]) => [
      name,
      value === null ? Schema.Null : Schema.Literal(value)
    ])
  )
})

export const ResponseEvent = Schema.Struct({
  type: Schema.String.check(Schema.isStartingWith("response.")),
  sequence_number: Count,
  response: optional(Response),
  output_index: optional(Count),
  item: optional(OutputItem),
  item_id: optional(Text),
  content_index: optional(Zero),
  summary_index: optional(Zero),
  part: optional(Schema.Union([OutputText, SummaryText])),
  delta: optional(Text),
  text: optional(Text),
  logprobs: optional(Objects),
  name: optional(Text),
  arguments: optional(Text),
  input: optional(Text)
}).annotate({
  description:
    "The data of one event; its `type` is the name of the event. The last one is `response.completed`, `response.incomplete` or `response.failed`. A stream that failed ends with `response.failed`."
})

// The Messages surface

const MessagesUsage = Schema.Struct({
  input_tokens: Count.annotate({ description: "without those that were read from a cache" }),
  cache_creation_input_tokens: optional(Zero),
  cache_read_input_tokens: optional(Count),
  output_tokens: Count
})

const Block = Schema.Union([
  typed("thinking", { thinking: Text, signature: Text }),
  typed("text", { text: Text }),
  typed("tool_use", { id: Text, name: Text, input: Schema.JsonObject })
])

const StopReason = Schema.Literals(["end_turn", "max_tokens", "tool_use"])

export const MessagesMessage = Schema.Struct({
  id: Schema.String.check(Schema.isStartingWith("msg_")),
  type: Schema.Literal("message"),
  role: Schema.Literal("assistant"),
  model: Written,
  content: Schema.Array(Block),
  stop_reason: Schema.NullOr(StopReason),
  stop_sequence: Schema.Null,
  usage: MessagesUsage
})

const Delta = Schema.Union([
  typed("thinking_delta", { thinking: Text }),
  typed("signature_delta", { signature: Text }),
  typed("text_delta", { text: Text }),
  typed("input_json_delta", { partial_json: Text })
])

export const MessagesEvent = Schema.Union([
  typed("message_start", { message: MessagesMessage }),
  typed("content_block_start", { index: Count, content_block: Block }),
  typed("content_block_delta", { index: Count, delta: Delta }),
  typed("content_block_stop", { index: Count }),
  typed("message_delta", {
    delta: Schema.Struct({ stop_reason: StopReason, stop_sequence: Schema.Null }),
    usage: MessagesUsage
  }),
  Schema.Struct({ type: Schema.Literals(["message_stop", "ping"]) })
]).annotate({
  description:
    "The data of one event, whose name is its type. One block is open at a time. A stream that failed ends with an event of the MessagesError shape."
})

export const MessagesCount = Schema.Struct({
  input_tokens: Count.annotate({ description: "an estimate" })
})

// Operations

export const Status = Schema.Struct({ status: Schema.Literal("ok") })
