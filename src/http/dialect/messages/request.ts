/** The requests of `POST /v1/messages` and of `POST /v1/messages/count_tokens` (docs/protocol.md, "Messages requests"). */
import { Result, Schema } from "effect"
import { decide } from "../../../domain/Errors.ts"
import type { DecodedRequest, Json } from "../../../domain/Inference.ts"
import { Calls } from "../conversation.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../../../domain/json.ts"
import {
  absentable,
  AnyObject,
  boundMaxTokens,
  Effort,
  ModelName,
  textsIn,
  thinkOf,
  wholeIn
} from "../fields.ts"
import { maxStopLength, maxStops, nativeOptions, samplingOf } from "../sampling.ts"
import { maxListed } from "../tools.ts"
import { unsupported } from "../types.ts"
import { changesIn, Message, nativeMessages, System } from "./blocks.ts"
import { nativeTools, Tool, ToolChoice } from "./tools.ts"

const Thinking = Schema.Struct({ type: Schema.String })

const OutputFormat = Schema.Struct({ type: Schema.Literal("json_schema"), schema: AnyObject })

const OutputConfig = Schema.Struct({
  effort: absentable(
    Schema.String,
    "how hard the model reasons, when `thinking` does not say it; left out for a model that cannot reason"
  ),
  format: absentable(OutputFormat, "a JSON schema that the answer has to follow")
})

const promptFields = {
  model: ModelName,
  messages: Schema.NonEmptyArray(Message),
  system: absentable(System),
  tools: absentable(Schema.Array(Tool).check(Schema.isMaxLength(maxListed)), "what the model may call"),
  tool_choice: absentable(
    ToolChoice,
    "`none` sends no tools, `tool` sends only the one of that name; a call cannot be forced"
  ),
  thinking: absentable(
    Thinking,
    "`enabled` or `disabled`; any other type leaves it to `output_config.effort`"
  ),
  output_config: absentable(OutputConfig),
  output_format: absentable(OutputFormat, "the older name of `output_config.format`"),
  compaction: unsupported("no conversation is shortened here; ask for a summary in a message"),
  thread: unsupported("nothing is stored here; send all messages")
}

const Count = Schema.Struct(promptFields)

const Messages = Schema.Struct({
  ...promptFields,
  max_tokens: wholeIn([1, 2 ** 31]).annotate({
    description: "a value above NUM_PREDICT_CAP is lowered to it, as `X-Max-Tokens` says"
  }),
  stream: absentable(Schema.Boolean, "default false"),
  temperature: nativeOptions.temperature,
  top_p: nativeOptions.top_p,
  top_k: nativeOptions.top_k,
  stop_sequences: absentable(textsIn(maxStops, maxStopLength), "texts that end the answer"),
  metadata: absentable(
    Schema.Struct({
      user_id: absentable(
        Schema.String,
        "for whom the request is; stored in the audit, at most 128 characters of it"
      )
    })
  )
})

const isEffort = Schema.is(Effort)

/** Clients send kinds of thinking and levels of effort before gateways know them. These leave it to the model. */
const thinkingOf = ({ output_config, thinking }: typeof Count.Type): Json | undefined => {
  if (thinking?.type === "enabled") return true
  if (thinking?.type === "disabled") return false
  const effort = output_config?.effort
  return isEffort(effort) ? thinkOf(effort) : undefined
}

const promptOf = decide(function* (request: typeof Count.Type, { toolsMax }: Bounds) {
  const made = new Calls()
  return present({
    messages: yield* nativeMessages(request.system, request.messages, made),
    tools: yield* nativeTools(request, changesIn(request.messages), made, toolsMax),
    format: (request.output_config?.format ?? request.output_format)?.schema,
    think: thinkingOf(request)
  })
})

/** Claude Code sends ids of a device and a session as JSON, which name nobody. */
const endUserOf = ({ metadata }: typeof Messages.Type): { readonly endUser?: string } => {
  const name = metadata?.user_id ?? ""
  return name === "" || name.startsWith("{") ? {} : { endUser: name }
}

const fieldNames = { schema: "output_config.format.schema", toolSchema: "input_schema" }

export const messagesRequest = requestDecoder(
  Messages,
  decide(function* (request: typeof Messages.Type, bounds: Bounds) {
    const { model, stop_sequences: stop, stream, temperature, top_k, top_p } = request
    return {
      kind: "chat",
      model,
      ...endUserOf(request),
      stream: stream ?? false,
      body: yield* promptOf(request, bounds),
      options: samplingOf(
        present({ temperature, top_k, top_p, stop: stop === null || stop?.length === 0 ? undefined : stop })
      ),
      thinkIfAble: true,
      ...(yield* boundMaxTokens("max_tokens", request.max_tokens, bounds.numPredictCap, true))
    } satisfies DecodedRequest
  }),
  fieldNames
)

export const countRequest = requestDecoder(
  Count,
  (request: typeof Count.Type, bounds: Bounds) =>
    Result.map(promptOf(request, bounds), (body): DecodedRequest => ({
      kind: "count",
      model: request.model,
      stream: false,
      body,
      options: {},
      thinkIfAble: true,
      maxTokens: 0
    })),
  fieldNames
)
