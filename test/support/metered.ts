/** Frames and requests for tests of `meterStream`. */
import { assert } from "@effect/vitest"
import type { Array as Arr } from "effect"
import type { Frame } from "../../src/domain/Frame.ts"
import type { JsonObject } from "../../src/domain/Inference.ts"
import type { MeteredModel, MeteredRequest, Wish } from "./MeteredModel.ts"

export type Chunk = Arr.NonEmptyReadonlyArray<Frame>

const createdAt = "2026-01-01T00:00:00Z"
export const base: Frame = { createdAt, text: "", done: false }
export const word: Frame = { ...base, text: "a" }
export const thought: Frame = { ...base, thinking: "hm" }
export const final = (counts: Partial<Frame>): Frame => ({
  ...base,
  done: true,
  doneReason: "stop",
  ...counts
})
export const times = (count: number, frame: Frame): ReadonlyArray<Frame> =>
  Array.from({ length: count }, () => frame)
export const chunk = (frames: ReadonlyArray<Frame>): Chunk => {
  const [first = word, ...rest] = frames
  return [first, ...rest]
}

export const wish = (body: JsonObject = {}, more: Partial<Wish> = {}): Wish => ({
  body: { messages: [], ...body },
  promptEstimate: 40,
  maxTokens: 1000,
  streamed: true,
  ...more
})

export const admitted = (model: MeteredModel, what: Wish = wish()): MeteredRequest => {
  const request = model.admit(what)
  assert.isDefined(request)
  if (request === undefined) throw new Error("refused")
  return request
}

export const read = (request: MeteredRequest): MeteredRequest => {
  while (request.step() === "frames") continue
  return request
}

export const textIn = (request: MeteredRequest): string =>
  request.shown.map(({ text, thinking }) => (thinking ?? "") + text).join("")

export const wordsIn = (request: MeteredRequest): number =>
  request.shown.filter(({ text, thinking }) => text !== "" || thinking !== undefined).length
