/** The answer of `POST /v1/chat/completions`: server-sent events, or one object (docs/protocol.md, "OpenAI answers"). */
import { randomUUID } from "node:crypto"
import type { Frame, ToolCall } from "../../../domain/Frame.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import type { Encoder } from "../Dialect.ts"
import { present } from "../decode.ts"
import { errorBody, type ErrorResponse } from "../../errors/errorResponses.ts"

export const event = (data: Json): string => `data: ${JSON.stringify(data)}\n\n`

/** Ends a failed stream: the error, and no `[DONE]` that would make it a success. */
export const openaiFailure = (error: ErrorResponse, requestId: string): string => {
  const body = errorBody(error, requestId)
  return event({ error: { ...body.error }, request_id: body.request_id })
}

export const openaiId = (prefix: string): string => `${prefix}-${randomUUID().replaceAll("-", "")}`

export const usageOf = (frame: Frame): JsonObject => {
  const [input, output] = [frame.promptEvalCount ?? 0, frame.evalCount ?? 0]
  return { prompt_tokens: input, completion_tokens: output, total_tokens: input + output }
}

/** Unix seconds of the backend's own clock; 0 never: an unreadable time is now. */
export const createdOf = (frame: Frame): number => {
  const at = Date.parse(frame.createdAt)
  return Math.floor((Number.isNaN(at) ? Date.now() : at) / 1000)
}

const finishReasonOf = (frame: Frame, calledTools: boolean): string =>
  frame.doneReason === "length" ? "length" : calledTools ? "tool_calls" : "stop"

/** Calls are numbered over the whole answer and always have an id; the backend's index is not to be trusted. */
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

/** Which build answered, as far as a client may know: never what is behind the gateway. */
export const systemFingerprint = "fp_tollgate"

/**
 * The end of a stream: finish reason and usage in the last chunk, or, for a client that asked for it
 * (`stream_options.include_usage`), usage in a chunk of its own without choices.
 */
export const ending = (chunk: { readonly [key: string]: Json }, usage: Json, usageChunk: boolean): string =>
  `${usageChunk ? event(chunk) + event({ ...chunk, choices: [], usage }) : event({ ...chunk, usage })}data: [DONE]\n\n`

export const chatEncoder = (model: string, usageChunk = false): Encoder => {
  const id = openaiId("chatcmpl")
  let created: number | undefined
  let started = false
  let calls = 0

  const chunk = (frame: Frame, delta: JsonObject, more: JsonObject = {}): string => {
    created ??= createdOf(frame)
    const role = started ? {} : { role: "assistant" }
    started = true
    return event({
      id,
      object: "chat.completion.chunk",
      created,
      model,
      system_fingerprint: systemFingerprint,
      choices: [{ index: 0, delta: { ...role, ...delta }, finish_reason: null, ...more }]
    })
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

  /** What one frame carries, reasoning first; an empty frame says nothing, but the first one says the role. */
  const carried = (frame: Frame): string => {
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
    frames: (frames) => frames.map((frame) => carried(frame) + (frame.done ? last(frame) : "")).join(""),
    failure: openaiFailure,
    logprobs: logprobsOf,
    object: (run, logprobs) => ({
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
          ...present({ logprobs }),
          finish_reason: finishReasonOf(run, run.toolCalls !== undefined)
        }
      ],
      usage: usageOf(run)
    })
  }
}
