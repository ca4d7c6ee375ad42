/** What a model server may answer, and what its frames come to. */
import * as fc from "fast-check"
import type { Frame } from "../../../../src/domain/Frame.ts"
import type { Json } from "../../../../src/domain/Inference.ts"
import { Fold } from "../../../../src/http/dialect/fold.ts"

export const createdAt = "2026-11-21T10:00:00.123456789Z"

export const frame = (more: Partial<Frame> = {}): Frame => ({ createdAt, text: "", done: false, ...more })
export const done = (more: Partial<Frame> = {}): Frame =>
  frame({ done: true, doneReason: "stop", promptEvalCount: 5, evalCount: 3, ...more })

const word = fc.string({ minLength: 1, maxLength: 4 })
const call = fc.record(
  {
    id: word,
    name: word,
    arguments: fc.dictionary(
      fc.string({ maxLength: 4 }).filter((key) => key !== "__proto__"),
      fc.string({ maxLength: 4 })
    )
  },
  { requiredKeys: ["name", "arguments"] }
)
const parts = {
  text: fc.oneof(fc.constant(""), fc.string({ unit: "binary", maxLength: 8 }), fc.constant("\n\ndata: x")),
  thinking: fc.string({ minLength: 1, maxLength: 8 }),
  toolCalls: fc.array(call, { minLength: 1, maxLength: 3 })
}
const ends = {
  doneReason: fc.constantFrom("stop", "length", "load", "odd"),
  promptEvalCount: fc.nat(100),
  promptEvalCachedCount: fc.nat(100),
  evalCount: fc.nat(100)
}

export const anyFrame = fc.record(parts, { requiredKeys: ["text"] }).map(frame)
const lastFrame = fc
  .record({ ...parts, ...ends }, { requiredKeys: ["text"] })
  .map((more) => frame({ done: true, ...more }))
export const anyFrames = fc
  .tuple(fc.array(anyFrame, { maxLength: 12 }), lastFrame)
  .map(([frames, last]) => [...frames, last])

export const folded = (frames: ReadonlyArray<Frame>): Frame => {
  const fold = new Fold()
  for (const each of frames) fold.add(each)
  return fold.frame ?? frame({ done: true })
}

/** The message of the model server that an answer comes back as; `ids` are those that the gateway gave its calls. */
export const messageOf = ({ text, thinking = "", toolCalls }: Frame, ids: ReadonlyArray<Json>): Json => ({
  role: "assistant",
  content: text,
  ...(thinking === "" ? {} : { thinking }),
  ...(toolCalls !== undefined && {
    tool_calls: toolCalls.map(({ arguments: args, id, name }, i) => ({
      id: id ?? ids[i] ?? null,
      function: { name, arguments: args }
    }))
  })
})
