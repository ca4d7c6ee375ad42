/**
 * Bounds on the answers of the backend. Each bound is computed from the request. A normal answer is far below it, and
 * the backend cannot decide how much memory is used. An answer beyond its bound is a failure of the backend.
 *
 * docs/run.md lists the figures.
 */
import type { Frame } from "../domain/Frame.ts"
import type { ModelCall, PreparedRequest } from "../domain/Inference.ts"

const kib = 1024
const mib = 1024 * kib

/** Bounds of an answer in frames. */
export interface FrameBounds {
  readonly frames: number
  /** the longest line */
  readonly lineBytes: number
  readonly bytes: number
}

/** Frames without output: the final one, what the backend's parsers add at the end, an error. */
const spareFrames = 256
/** Bytes of a line besides its text: names, times, counts, the JSON of a tool call. */
const spareBytes = 256 * kib
/** The longest tokens of common vocabularies are runs of 128 blanks; nearly all are shorter than 16 bytes. */
const tokenBytes = 128
/** Bytes of an entry of log probabilities: the token, a number, the token's bytes as numbers. */
const entryBytes = 192
/** Bytes of a line without its text, including the name of the model. */
const frameBytes = 512
/** Bytes of an id in a `context` list, with its comma. */
const idBytes = 8
/** Tokens in a `context` that come from the model's own template and system prompt. */
const templateTokens = 65_536
/** What Ollama's own client accepts. */
const longestLine = 8 * mib

export const frameBoundsOf = ({ numPredict, plan, request }: ModelCall): FrameBounds => {
  const tokens = plan.runs * numPredict
  const context = request.kind === "generate" ? idBytes * (request.promptBytes + templateTokens + tokens) : 0
  // All output may come in one line. Log probabilities come with each token.
  const lineBytes = Math.min(longestLine, spareBytes + tokens * tokenBytes + context)
  const frames = tokens + spareFrames
  return {
    frames,
    lineBytes,
    bytes: lineBytes + frames * frameBytes + tokens * request.logprobs * entryBytes
  }
}

/** Bytes of a vector: 4096 numbers of 16 digits, times two. */
const vectorBytes = 128 * kib
/** Bytes of all vectors: 2048 vectors of 1024 numbers, or 512 of 4096. */
const maxVectorBytes = 32 * mib

/** The bound in bytes of an answer with one vector per input. */
export const vectorBytesOf = ({ inputs }: Pick<PreparedRequest, "inputs">): number =>
  Math.min(maxVectorBytes, spareBytes + vectorBytes * inputs)

/** The most memory that the answer to a call may take. */
export const answerBytesOf = (call: ModelCall): number => {
  switch (call.request.kind) {
    case "chat":
    case "generate":
      return frameBoundsOf(call).bytes
    case "embed":
    case "embeddings":
      return vectorsFactor(call.request) * vectorBytesOf(call.request)
    case "show":
      return parsedFactor * showBytes
    case "count":
      return 0
  }
}

/** Bytes of a description: a licence, and the names and shapes of several thousand tensors. */
export const showBytes = 2 * mib
/** Bytes of the list of models: ten thousand entries. */
export const tagsBytes = 4 * mib
/**
 * Objects and lists in one line, or in an answer of one object. An empty one takes two bytes as text and 60 in memory.
 * Descriptions of models have some thousands; a line of log probabilities has 42 for each token.
 */
export const maxContainers = 65_536

/** Tool calls of an answer. On some surfaces a call of 40 bytes becomes six events. */
export const maxToolCalls = 1000

/** Whether `text` has more than `most` braces and brackets, including those in strings. */
export const hasMoreThan = (text: string, most: number): boolean => {
  if (text.length < 2 * most) return false
  let count = 0
  for (const opening of ["{", "["]) {
    for (let at = text.indexOf(opening); at !== -1; at = text.indexOf(opening, at + 1)) {
      count += 1
      if (count > most) return true
    }
  }
  return false
}

/** Whether `text` has more than `maxContainers` braces and brackets. */
export const isTooDense = (text: string): boolean => hasMoreThan(text, maxContainers)

/**
 * Memory of a parsed answer as a multiple of its bytes. Measured with Node 24: 21 for `{}`, 18 for objects with one
 * short key, 13 for `[]`, 2.3 for log probabilities, 1.2 for the tensors of a model.
 */
export const parsedFactor = 24
/**
 * The same for vectors: the memory in which their bytes were collected, and that of their own length. As base64 of float32 a number
 * takes 5.3 bytes, and at least two as it came.
 */
export const vectorsFactor = ({ base64 }: Pick<PreparedRequest, "base64">): number =>
  base64 === true ? 5 : 3
/**
 * Memory of a frame besides its characters. A string takes two bytes for each character if one of them is not
 * Latin-1.
 */
const frameOverhead = 64
const characterBytes = 2
/** Log probabilities as objects and, at the end, as text. */
const logprobsFactor = 5

/** The memory of a frame that is collected for an answer of one object. `lineLength` is the length of its line. */
export const foldedBytesOf = (frame: Frame, lineLength: number): number => {
  if (frame.toolCalls !== undefined || frame.context !== undefined) return parsedFactor * lineLength
  if (frame.logprobs !== undefined) return logprobsFactor * lineLength
  return frameOverhead + characterBytes * (frame.text.length + (frame.thinking?.length ?? 0))
}
