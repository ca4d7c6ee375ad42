/** The answers of `POST /api/chat` and `POST /api/generate`: frames as NDJSON lines, or one object (docs/protocol.md, "Chat"). */
import { type Frame, hasOnlyText, namedCounts } from "../../../domain/Frame.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { type Encoder, joined, type SealContext } from "../Dialect.ts"
import { jsonText, present } from "../../../domain/json.ts"
import { noContext } from "./sealedContext.ts"

/** What an endpoint calls the output of its model. */
interface Output {
  /** `more`: what the model wrote beside the text */
  readonly of: (text: string, more: JsonObject) => JsonObject
  /** what is around the text in the JSON of an output without more */
  readonly around: readonly [before: string, after: string]
}

const message: Output = {
  of: (text, more) => ({ message: { role: "assistant", content: text, ...more } }),
  around: ['"message":{"role":"assistant","content":', "}"]
}

const response: Output = { of: (text, more) => ({ response: text, ...more }), around: ['"response":', ""] }

const moreOf = ({ thinking, toolCalls }: Frame): JsonObject =>
  present({
    thinking,
    // The calls are numbered here: the backend's own index is 0 for every call of many models.
    tool_calls: toolCalls?.map((call, index) => ({
      ...present({ id: call.id }),
      function: { index, name: call.name, arguments: call.arguments }
    }))
  })

/** The fields of the last frame, in the backend's order. Absent counts stay absent. */
const endOf = (frame: Frame, seal: SealContext): JsonObject =>
  present({
    done_reason: frame.doneReason,
    context: frame.context && seal(frame.context),
    ...namedCounts(frame)
  })

const encoder = (model: string, output: Output, seal: SealContext): Encoder => {
  const objectOf = (frame: Frame): Json => ({
    model,
    created_at: frame.createdAt,
    ...output.of(frame.text, moreOf(frame)),
    ...present({ logprobs: frame.logprobs }),
    done: frame.done,
    ...(frame.done ? endOf(frame, seal) : {})
  })
  const head = `{"model":${jsonText(model)},"created_at":`
  const [before, after] = output.around
  /** The line of a frame. For a frame with only text its parts are joined, which costs less than making an object. */
  const lineOf = (frame: Frame): string =>
    hasOnlyText(frame)
      ? `${head}${jsonText(frame.createdAt)},${before}${jsonText(frame.text)}${after},"done":false}\n`
      : `${jsonText(objectOf(frame))}\n`
  return {
    frames: (chunk) => joined(chunk, lineOf),
    // `error` is a string, because native clients fail on an object.
    failure: (error) => `${jsonText({ error: error.message })}\n`,
    object: (run) => jsonText(objectOf(run))
  }
}

export const chatEncoder = (model: string): Encoder => encoder(model, message, noContext)

export const generateEncoder = (model: string, seal: SealContext): Encoder => encoder(model, response, seal)
