/** A run of frames as one object. */
import { assert, describe, it } from "@effect/vitest"
import type { Frame } from "../../../../src/domain/Frame.ts"
import type { Encoder } from "../../../../src/http/dialect/Dialect.ts"
import { chatEncoder as nativeChat } from "../../../../src/http/dialect/native/answer.ts"
import { generateEncoder } from "../../../../src/http/dialect/native/answer.ts"
import { chatEncoder as openaiChat } from "../../../../src/http/dialect/openai/answer.ts"
import { completionEncoder } from "../../../../src/http/dialect/openai/answer.ts"
import { folded } from "./answers.ts"

const entry = (token: string) => ({
  token,
  logprob: -0.5,
  bytes: [...Buffer.from(token)],
  top_logprobs: [{ token: `${token}'`, logprob: -1.5 }]
})
const tokens = Array.from({ length: 100 }, (_, i) => `t${i} "é`)
const frames: ReadonlyArray<Frame> = tokens.map((token, i) => ({
  createdAt: "2026-01-01T00:00:00Z",
  text: token,
  logprobs: i % 7 === 0 ? [entry(token), entry("x")] : [entry(token)],
  done: i === tokens.length - 1
}))

const foldOf = (encoder: Encoder, run: ReadonlyArray<Frame>) => JSON.parse(encoder.object(folded(run)))

describe("log probabilities of a run", () => {
  const surfaces: ReadonlyArray<readonly [string, () => Encoder]> = [
    ["native chat", () => nativeChat("m")],
    ["native generate", () => generateEncoder("m", (ids) => ids)],
    ["OpenAI chat", () => openaiChat("m")],
    ["OpenAI completions", () => completionEncoder("m", "echo")]
  ]
  for (const [name, make] of surfaces) {
    it(`when an answer is one object (${name}), then they are those of all frames, as if they were one`, () => {
      const all = frames.flatMap(({ logprobs }) => logprobs ?? [])
      const [run, encoder] = [foldOf(make(), frames), make()]
      const last = frames.at(-1)
      assert.isDefined(last)
      const expected: object = JSON.parse(encoder.object({ ...last, text: tokens.join(""), logprobs: all }))
      const without = (value: object) => ({ ...value, id: "", created: 0, created_at: "" })
      assert.deepStrictEqual(without(run), without(expected))
    })

    it(`when there are none (${name}), then nothing stands for them but what the surface says of none`, () => {
      const [first] = frames
      assert.isDefined(first)
      const { logprobs: _, ...bare } = first
      const text = JSON.stringify(foldOf(make(), [bare]))
      assert.match(text, name === "OpenAI completions" ? /"logprobs":null/ : /^(?!.*logprobs)/)
      assert.notInclude(JSON.stringify(foldOf(make(), [{ ...bare, logprobs: [] }])), "-0.5")
    })
  }
})
