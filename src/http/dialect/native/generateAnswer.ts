/** The answer of `POST /api/generate`: as chat, with the text in `response` (docs/protocol.md, "Generate"). */
import { type Frame, hasOnlyText } from "../../../domain/Frame.ts"
import type { Json } from "../../../domain/Inference.ts"
import { type Encoder, joined, type SealContext } from "../Dialect.ts"
import { present } from "../decode.ts"
import { countsOf, nativeFailure, nativeToolCalls } from "./chatAnswer.ts"

export const generateEncoder = (model: string, seal: SealContext): Encoder => {
  const objectOf = (frame: Frame): Json => ({
    model,
    created_at: frame.createdAt,
    response: frame.text,
    ...present({
      thinking: frame.thinking,
      tool_calls: frame.toolCalls === undefined ? undefined : nativeToolCalls(frame.toolCalls),
      logprobs: frame.logprobs
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
  const head = `{"model":${JSON.stringify(model)},"created_at":`
  const lineOf = (frame: Frame): string =>
    hasOnlyText(frame)
      ? `${head}${JSON.stringify(frame.createdAt)},"response":${JSON.stringify(frame.text)},"done":false}\n`
      : `${JSON.stringify(objectOf(frame))}\n`
  return {
    frames: (chunk) => joined(chunk, lineOf),
    failure: nativeFailure,
    object: objectOf
  }
}
