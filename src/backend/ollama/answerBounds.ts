/**
 * How much of an answer the gateway takes from the backend. Each bound follows from what was asked for, so that an honest
 * answer is far below it, and what the backend sends never decides how much memory is used. An answer beyond its bound is
 * a failure of the backend, whatever is in it.
 *
 * docs/operations.md has the figures as a table.
 */
import type { ModelCall } from "../../domain/Inference.ts"

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
 * Answers in one object that are being read and decoded at a time, in bytes of their bounds: a decoded answer takes several
 * times its size. One beyond it waits, its connection paused.
 */
export const mostWholeBytes = 48 * mib
