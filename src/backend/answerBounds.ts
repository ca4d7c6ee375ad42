/**
 * Bounds on the answers of the backend. Each bound follows from the request, so that an honest answer is far below
 * it, and the backend cannot decide how much memory is used. An answer beyond its bound is a failure of the backend.
 *
 * docs/operations.md has the figures as a table.
 */
import type { Frame } from "../domain/Frame.ts"
import type { ModelCall } from "../domain/Inference.ts"

const kib = 1024
const mib = 1024 * kib

/** Of an answer in frames. */
export interface FrameBounds {
  readonly frames: number
  /** the longest line */
  readonly lineBytes: number
  readonly bytes: number
}

/** Frames without output: the final one, the ends of parsers, an error. */
const spareFrames = 256
/** Everything in a line but its text: names, times, counts, the JSON around a tool call. */
const spareBytes = 256 * kib
/** The longest tokens of common vocabularies are runs of 128 blanks; nearly all are shorter than 16 bytes. */
const tokenBytes = 128
/** An entry of log probabilities: the token, a number, the token's bytes as numbers. */
const entryBytes = 192
/** What stands around the text in a line, the model's name included. */
const frameBytes = 512
/** An id of a `context` list, with its comma. */
const idBytes = 8
/** Tokens of a model's own template and system prompt that a `context` may have beside ours. */
const templateTokens = 65_536
/** What the backend's own client accepts. */
const longestLine = 8 * mib
const mostTopLogprobs = 20

export const frameBoundsOf = ({ maxTokens, plan, request }: ModelCall): FrameBounds => {
  const tokens = plan.runs * maxTokens
  const top = request.body["top_logprobs"]
  const entries =
    request.body["logprobs"] === true ? 1 + (typeof top === "number" ? Math.min(top, mostTopLogprobs) : 0) : 0
  const context = request.kind === "generate" ? idBytes * (request.promptBytes + templateTokens + tokens) : 0
  // Collected output comes in one line; log probabilities come token by token.
  const lineBytes = Math.min(longestLine, spareBytes + tokens * tokenBytes + context)
  const frames = tokens + spareFrames
  return { frames, lineBytes, bytes: lineBytes + frames * frameBytes + tokens * entries * entryBytes }
}

/** 4096 numbers of 16 digits and more, and as much again. */
const vectorBytes = 128 * kib
/** 2048 vectors of 1024 numbers, or 512 of 4096. */
const mostVectorBytes = 32 * mib

/** Bytes of an answer with a vector for each input. */
export const vectorBytesOf = ({ body }: ModelCall["request"]): number => {
  const input = body["input"]
  return Math.min(mostVectorBytes, spareBytes + vectorBytes * (Array.isArray(input) ? input.length : 1))
}

/** A description: a licence, and the names and shapes of several thousand tensors. */
export const showBytes = 2 * mib
/** The list of models: ten thousand of them, which is as many as are kept. */
export const tagsBytes = 4 * mib
/**
 * Objects and lists in one line, or in one answer that is parsed as a whole. An empty one has two bytes as text and 60 in
 * memory. Descriptions of models have some thousands, and a line of log probabilities has 42 a token.
 */
export const mostContainers = 65_536

/** Whether `text` may have more objects and lists than that. Braces and brackets in strings are counted too. */
export const isTooDense = (text: string): boolean => {
  if (text.length < 2 * mostContainers) return false
  let count = 0
  for (const opening of ["{", "["]) {
    for (let at = text.indexOf(opening); at !== -1; at = text.indexOf(opening, at + 1)) count += 1
  }
  return count > mostContainers
}

/**
 * How many times its bytes an answer may take as parsed objects. Measured with Node 24: `{}` takes 21 times its bytes,
 * an object with a short key of its own 18, `[]` 13; log probabilities 2.3, the tensors of a model 1.2.
 */
export const parsedFactor = 24
/**
 * What a frame costs whose text is kept, beside the text: the string and its place in the whole. A character has two bytes
 * as soon as one of the text is not Latin.
 */
const frameCost = 64
const characterBytes = 2
/** Log probabilities are kept as text, which is a little longer on the OpenAI surface. */
const logprobsFactor = 2

/** What is kept of a frame when the answer is made into one object. `lineLength`: of the line it came in. */
export const foldedBytesOf = (frame: Frame, lineLength: number): number => {
  if (frame.toolCalls !== undefined || frame.context !== undefined) return parsedFactor * lineLength
  if (frame.logprobs !== undefined) return logprobsFactor * lineLength
  return frameCost + characterBytes * (frame.text.length + (frame.thinking?.length ?? 0))
}
