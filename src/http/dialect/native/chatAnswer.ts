/** The answer of `POST /api/chat`: frames as NDJSON lines, or one object (docs/protocol.md, "Chat"). */
import { type Frame, hasOnlyText, type ToolCall } from "../../../domain/Frame.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { type Encoder, joined } from "../Dialect.ts"
import type { ErrorResponse } from "../../errors/errorResponses.ts"
import { present } from "../decode.ts"

/** Numbers the calls. The backend's own index is 0 for every call of many models. */
export const nativeToolCalls = (calls: ReadonlyArray<ToolCall>): ReadonlyArray<JsonObject> =>
  calls.map((call, index) => ({
    ...present({ id: call.id }),
    function: { index, name: call.name, arguments: call.arguments }
  }))

/** The counts and durations of the last frame, in the backend's order. Absent ones stay absent. */
export const countsOf = (frame: Frame): JsonObject =>
  present({
    total_duration: frame.totalDuration,
    load_duration: frame.loadDuration,
    prompt_eval_count: frame.promptEvalCount,
    prompt_eval_cached_count: frame.promptEvalCachedCount,
    prompt_eval_duration: frame.promptEvalDuration,
    eval_count: frame.evalCount,
    eval_duration: frame.evalDuration
  })

const messageOf = (frame: Frame): JsonObject => ({
  role: "assistant",
  content: frame.text,
  ...present({
    thinking: frame.thinking,
    tool_calls: frame.toolCalls === undefined ? undefined : nativeToolCalls(frame.toolCalls)
  })
})

/** The line that ends a failed stream. `error` is a string, because native clients fail on an object. */
export const nativeFailure = (error: ErrorResponse): string => `${JSON.stringify({ error: error.message })}\n`

export const chatEncoder = (model: string): Encoder => {
  const objectOf = (frame: Frame): Json => ({
    model,
    created_at: frame.createdAt,
    message: messageOf(frame),
    ...present({ logprobs: frame.logprobs }),
    done: frame.done,
    ...(frame.done ? { ...present({ done_reason: frame.doneReason }), ...countsOf(frame) } : {})
  })
  const head = `{"model":${JSON.stringify(model)},"created_at":`
  /** The line of a frame. For a frame with only text its parts are joined, which costs less than making an object. */
  const lineOf = (frame: Frame): string =>
    hasOnlyText(frame)
      ? `${head}${JSON.stringify(frame.createdAt)},"message":{"role":"assistant","content":${JSON.stringify(frame.text)}},"done":false}\n`
      : `${JSON.stringify(objectOf(frame))}\n`
  return {
    frames: (chunk) => joined(chunk, lineOf),
    failure: nativeFailure,
    object: objectOf
  }
}
