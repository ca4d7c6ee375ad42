/**
 * The shapes of all answers, for `openapi.json`. Encoders write the answers by hand, because they write each frame of
 * a stream. `test/unit/http/openapi.test.ts` compares their output with these schemas.
 */
import { Schema } from "effect"
import { systemFingerprint } from "../../src/http/dialect/openai/answer.ts"

const optional = Schema.optionalKey

const Count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const Nanoseconds = Count.annotate({ description: "nanoseconds" })
const Seconds = Schema.Int.annotate({ description: "unix seconds" })
const Written = Schema.String.annotate({ description: "as the client wrote it" })
const Objects = Schema.Array(Schema.JsonObject)
const Numbers = Schema.Array(Schema.Finite)
const Zero = Schema.Literal(0)

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

const NativeToolCall = Schema.Struct({
  id: optional(Schema.String),
  function: Schema.Struct({ index: Count, name: Schema.String, arguments: Schema.JsonObject })
})

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
  message: Schema.Struct({
    role: Schema.Literal("assistant"),
    content: Schema.String,
    thinking: optional(Schema.String),
    tool_calls: optional(Schema.Array(NativeToolCall))
  })
}).annotate({ description: oneLine })

export const NativeGenerateFrame = Schema.Struct({
  ...nativeFrame,
  response: Schema.String,
  thinking: optional(Schema.String),
  tool_calls: optional(Schema.Array(NativeToolCall)),
  context: optional(
    Schema.Array(Count).annotate({ description: "to send back; sealed for this key and model" })
  )
}).annotate({ description: oneLine })

export const NativeStreamError = Schema.Struct({ error: Schema.String }).annotate({
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
  license: optional(Schema.String),
  parameters: optional(Schema.String),
  modified_at: optional(Schema.String),
  requires: optional(Schema.String),
  renderer: optional(Schema.String),
  parser: optional(Schema.String),
  details: Schema.JsonObject,
  model_info: Schema.JsonObject,
  projector_info: optional(Schema.JsonObject),
  context_length: optional(ContextLength),
  tensors: optional(Objects),
  capabilities: Schema.Array(Schema.String)
}).annotate({
  description: "Without system prompt, template, modelfile and messages.",
  additionalProperties: false
})

export const Tags = Schema.Struct({
  models: Schema.Array(
    Schema.Struct({
      name: Schema.String,
      model: Schema.String,
      modified_at: Schema.String,
      size: Schema.Int,
      digest: Schema.String,
      details: Schema.JsonObject,
      capabilities: optional(Schema.Array(Schema.String))
    })
  )
})

export const Version = Schema.Struct({
  version: Schema.String.annotate({ description: "the gateway's own" })
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

const calledFunction = {
  id: Schema.String,
  type: Schema.Literal("function"),
  function: Schema.Struct({
    name: Schema.String,
    arguments: Schema.String.annotate({ description: "a JSON object as text" })
  })
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
        content: Schema.NullOr(Schema.String),
        reasoning: optional(Schema.String),
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
    content: optional(Schema.String),
    reasoning: optional(Schema.String),
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
  text: Schema.String,
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

export const EmbeddingList = Schema.Struct({
  object: Schema.Literal("list"),
  model: Written,
  data: Schema.Array(
    Schema.Struct({
      object: Schema.Literal("embedding"),
      index: Count,
      embedding: Schema.Union([Numbers, Schema.String])
    })
  ),
  usage: Schema.Struct({ prompt_tokens: Count, total_tokens: Count })
})

export const ModelEntry = Schema.Struct({
  id: Schema.String,
  object: Schema.Literal("model"),
  created: Seconds,
  owned_by: Schema.Literal("tollgate"),
  context_length: optional(ContextLength)
})

export const ModelList = Schema.Struct({
  object: Schema.Literal("list"),
  data: Schema.Array(ModelEntry)
})

// Responses

const OutputText = Schema.Struct({
  type: Schema.Literal("output_text"),
  text: Schema.String,
  annotations: Objects,
  logprobs: Objects
})
const SummaryText = Schema.Struct({ type: Schema.Literal("summary_text"), text: Schema.String })

const itemStatus = Schema.Literals(["in_progress", "completed", "incomplete"])

const OutputItem = Schema.Union([
  Schema.Struct({
    id: Schema.String,
    type: Schema.Literal("reasoning"),
    summary: Schema.Array(SummaryText),
    encrypted_content: optional(
      Schema.String.annotate({ description: "the same text, for clients that send only this back" })
    )
  }),
  Schema.Struct({
    id: Schema.String,
    type: Schema.Literal("message"),
    status: itemStatus,
    role: Schema.Literal("assistant"),
    content: Schema.Array(OutputText)
  }),
  Schema.Struct({
    id: Schema.String,
    type: Schema.Literal("function_call"),
    status: itemStatus,
    call_id: Schema.String,
    name: Schema.String,
    namespace: optional(Schema.String),
    arguments: Schema.String.annotate({ description: "a JSON object as text" })
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
      message: Schema.String
    })
  ),
  incomplete_details: Schema.NullOr(Schema.Struct({ reason: Schema.Literal("max_output_tokens") })),
  model: Written,
  output: Schema.Array(OutputItem),
  usage: Schema.NullOr(ResponseUsage),
  // As the client sent them, or their defaults.
  instructions: Schema.NullOr(Schema.String),
  max_output_tokens: Schema.NullOr(Count),
  metadata: Schema.JsonObject,
  reasoning: Schema.NullOr(Schema.JsonObject),
  temperature: Schema.Finite,
  text: Schema.JsonObject,
  tool_choice: Schema.Union([Schema.String, Schema.JsonObject]),
  tools: Objects,
  top_p: Schema.Finite,
  // Constants.
  background: Schema.Literal(false),
  frequency_penalty: Zero,
  max_tool_calls: Schema.Null,
  parallel_tool_calls: Schema.Literal(true),
  presence_penalty: Zero,
  previous_response_id: Schema.Null,
  prompt_cache_key: Schema.Null,
  safety_identifier: Schema.Null,
  service_tier: Schema.Literal("default"),
  store: Schema.Literal(false),
  top_logprobs: Zero,
  truncation: Schema.Literal("disabled")
})

export const ResponseEvent = Schema.Struct({
  type: Schema.String.check(Schema.isStartingWith("response.")),
  sequence_number: Count,
  response: optional(Response),
  output_index: optional(Count),
  item: optional(OutputItem),
  item_id: optional(Schema.String),
  content_index: optional(Zero),
  summary_index: optional(Zero),
  part: optional(Schema.Union([OutputText, SummaryText])),
  delta: optional(Schema.String),
  text: optional(Schema.String),
  logprobs: optional(Objects),
  name: optional(Schema.String),
  arguments: optional(Schema.String)
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
  Schema.Struct({ type: Schema.Literal("thinking"), thinking: Schema.String, signature: Schema.String }),
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("tool_use"),
    id: Schema.String,
    name: Schema.String,
    input: Schema.JsonObject
  })
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
  Schema.Struct({ type: Schema.Literal("thinking_delta"), thinking: Schema.String }),
  Schema.Struct({ type: Schema.Literal("signature_delta"), signature: Schema.String }),
  Schema.Struct({ type: Schema.Literal("text_delta"), text: Schema.String }),
  Schema.Struct({ type: Schema.Literal("input_json_delta"), partial_json: Schema.String })
])

export const MessagesEvent = Schema.Union([
  Schema.Struct({ type: Schema.Literal("message_start"), message: MessagesMessage }),
  Schema.Struct({ type: Schema.Literal("content_block_start"), index: Count, content_block: Block }),
  Schema.Struct({ type: Schema.Literal("content_block_delta"), index: Count, delta: Delta }),
  Schema.Struct({ type: Schema.Literal("content_block_stop"), index: Count }),
  Schema.Struct({
    type: Schema.Literal("message_delta"),
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

export const Text = Schema.String
