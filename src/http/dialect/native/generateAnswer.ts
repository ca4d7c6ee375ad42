/** The answer of `POST /api/generate`: as chat, with the text in `response` (docs/protocol.md, "Generate"). */
import type { Frame } from "../../../domain/Frame.ts"
import type { Json } from "../../../domain/Inference.ts"
import type { Encoder, SealContext } from "../Dialect.ts"
import { present } from "../decode.ts"
import { countsOf, nativeFailure, nativeToolCalls } from "./chatAnswer.ts"

export const generateEncoder = (model: string, seal: SealContext): Encoder => {
  const objectOf = (frame: Frame, logprobs: Json | undefined = frame.logprobs): Json => ({
    model,
    created_at: frame.createdAt,
    response: frame.text,
    ...present({
      thinking: frame.thinking,
      tool_calls: frame.toolCalls === undefined ? undefined : nativeToolCalls(frame.toolCalls),
      logprobs
    }),
    done: frame.done,
    ...(frame.done
      ? {
          ...present({
            done_reason: frame.doneReason,
            context: frame.context === undefined ? undefined : seal(frame.context)
          }),
          ...countsOf(frame)
        }
      : {})
  })
  return {
    frames: (chunk) => chunk.map((frame) => `${JSON.stringify(objectOf(frame))}\n`).join(""),
    failure: nativeFailure,
    object: objectOf,
    logprobs: (entries) => entries
  }
}
