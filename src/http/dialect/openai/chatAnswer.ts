/** The answer of `POST /v1/chat/completions`: server-sent events, or one object (docs/protocol.md, "OpenAI answers"). */
import { randomUUID } from "node:crypto"
import { type Frame, hasOnlyText, type ToolCall } from "../../../domain/Frame.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { type Encoder, joined } from "../Dialect.ts"
import { present } from "../decode.ts"
import { errorBody, type ErrorResponse } from "../../errors/errorResponses.ts"

export const event = (data: Json): string => `data: ${JSON.stringify(data)}\n\n`

/** The last event of a failed stream. No `[DONE]` follows, which would mean success. */
export const openaiFailure = (error: ErrorResponse, requestId: string): string =>
  event(errorBody(error, requestId))

export const openaiId = (prefix: string): string => `${prefix}-${randomUUID().replaceAll("-", "")}`

export const usageOf = (frame: Frame): JsonObject => {
  const [input, output] = [frame.promptEvalCount ?? 0, frame.evalCount ?? 0]
  const cached = frame.promptEvalCachedCount
  return {
    prompt_tokens: input,
    completion_tokens: output,
    total_tokens: input + output,
    ...(cached === undefined ? {} : { prompt_tokens_details: { cached_tokens: cached } })
  }
}

/** Unix seconds by the backend's clock. An unreadable time becomes now. */
export const createdOf = (frame: Frame): number => {
  const at = Date.parse(frame.createdAt)
  return Math.floor((Number.isNaN(at) ? Date.now() : at) / 1000)
}

/** As Ollama: an answer with calls asks for their results, also when its text was cut after them. A call itself is never cut. */
const finishReasonOf = (frame: Frame, calledTools: boolean): string =>
  calledTools ? "tool_calls" : frame.doneReason === "length" ? "length" : "stop"

/** Every call gets an id. The backend's index is not used, because it is 0 for every call of many models. */
const toolCallsOf = (calls: ReadonlyArray<ToolCall>): ReadonlyArray<JsonObject> =>
  calls.map((call) => ({
    id: call.id ?? openaiId("call"),
    type: "function",
    function: { name: call.name, arguments: JSON.stringify(call.arguments) }
  }))

const logprobsOf = (logprobs: ReadonlyArray<JsonObject>): JsonObject => ({
  content: logprobs.map((entry) => ({
    ...entry,
    bytes: entry["bytes"] ?? null,
    top_logprobs: entry["top_logprobs"] ?? []
  })),
  refusal: null
})

/** A constant, because clients must not learn what is behind the gateway. */
export const systemFingerprint = "fp_tollgate"

/**
 * The end of a stream. The last chunk has finish reason and usage. With `stream_options.include_usage`, the usage is in
 * another chunk without choices.
 */
export const ending = (chunk: { readonly [key: string]: Json }, usage: Json, usageChunk: boolean): string =>
  `${usageChunk ? event(chunk) + event({ ...chunk, choices: [], usage }) : event({ ...chunk, usage })}data: [DONE]\n\n`

/**
 * The text before and after the text of a frame in `event(data)`. `data` has an empty text there, and `after` follows it.
 */
export const around = (data: Json, after: string): readonly [before: string, after: string] => {
  const whole = event(data)
  return [whole.slice(0, whole.length - after.length - emptyText.length), after]
}
const emptyText = '""'

export const chatEncoder = (model: string, usageChunk = false): Encoder => {
  const id = openaiId("chatcmpl")
  let created: number | undefined
  /** what is around the text of a frame with nothing else */
  let textEvent: readonly [before: string, after: string] | undefined
  let started = false
  let calls = 0

  const chunkOf = (frame: Frame, delta: JsonObject, more: JsonObject = {}): Json => {
    created ??= createdOf(frame)
    const role = started ? {} : { role: "assistant" }
    started = true
    return {
      id,
      object: "chat.completion.chunk",
      created,
      model,
      system_fingerprint: systemFingerprint,
      choices: [{ index: 0, delta: { ...role, ...delta }, finish_reason: null, ...more }]
    }
  }
  const chunk = (frame: Frame, delta: JsonObject, more?: JsonObject): string =>
    event(chunkOf(frame, delta, more))

  /** The chunk of a frame with only text. Its parts are joined, which costs less than making an object. */
  const textChunk = (frame: Frame): string => {
    textEvent ??= around(chunkOf(frame, { content: "" }), '},"finish_reason":null}]}\n\n')
    return textEvent[0] + JSON.stringify(frame.text) + textEvent[1]
  }

  const last = (frame: Frame): string =>
    ending(
      {
        id,
        object: "chat.completion.chunk",
        created: created ?? createdOf(frame),
        model,
        system_fingerprint: systemFingerprint,
        choices: [{ index: 0, delta: {}, finish_reason: finishReasonOf(frame, calls > 0) }]
      },
      usageOf(frame),
      usageChunk
    )

  /** The chunks of one frame, reasoning first. An empty frame has none, unless it is the first one, which has the role. */
  const chunksOf = (frame: Frame): string => {
    if (started && hasOnlyText(frame)) return frame.text === "" ? "" : textChunk(frame)
    let text = frame.thinking === undefined ? "" : chunk(frame, { reasoning: frame.thinking })
    const toolCalls = toolCallsOf(frame.toolCalls ?? []).map((call) => ({ index: calls++, ...call }))
    const more = frame.logprobs === undefined ? {} : { logprobs: logprobsOf(frame.logprobs) }
    if (frame.text !== "" || toolCalls.length > 0 || frame.logprobs !== undefined || !started) {
      text += chunk(
        frame,
        toolCalls.length > 0
          ? { ...(frame.text === "" ? {} : { content: frame.text }), tool_calls: toolCalls }
          : { content: frame.text },
        more
      )
    }
    return text
  }

  return {
    frames: (frames) =>
      joined(frames, (frame) => (frame.done ? chunksOf(frame) + last(frame) : chunksOf(frame))),
    failure: openaiFailure,
    object: (run) => ({
      id,
      object: "chat.completion",
      created: createdOf(run),
      model,
      system_fingerprint: systemFingerprint,
      choices: [
        {
          index: 0,
          message: {
            role: "assistant",
            content: run.text === "" && run.toolCalls !== undefined ? null : run.text,
            ...present({
              reasoning: run.thinking,
              tool_calls: run.toolCalls === undefined ? undefined : toolCallsOf(run.toolCalls)
            })
          },
          ...present({ logprobs: run.logprobs === undefined ? undefined : logprobsOf(run.logprobs) }),
          finish_reason: finishReasonOf(run, run.toolCalls !== undefined)
        }
      ],
      usage: usageOf(run)
    })
  }
}
