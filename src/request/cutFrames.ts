/** Cuts frames that cost more than is left. */
import { StringDecoder } from "node:string_decoder"
import type { Frame } from "../domain/Frame.ts"
import { longestTokenBytes, type OutputCount, textOf } from "./OutputCount.ts"

/** The first `bytes` bytes of a text, without half a character at the end. */
const beginningOf = (text: string, bytes: number): string =>
  new StringDecoder("utf8").write(Buffer.from(text).subarray(0, Math.max(0, bytes)))

/**
 * The reasoning and text in the first `bytes` of a frame; undefined when there is none. Half a tool call is useless,
 * and log probabilities may belong to text that was cut.
 */
const cutFrame = ({ createdAt, text, thinking = "" }: Frame, bytes: number): Frame | undefined => {
  const cut = {
    thinking: beginningOf(thinking, bytes),
    text: beginningOf(text, bytes - Buffer.byteLength(thinking))
  }
  if (cut.thinking === "" && cut.text === "") return undefined
  return {
    createdAt,
    text: cut.text,
    ...(cut.thinking === "" ? {} : { thinking: cut.thinking }),
    done: false
  }
}

/**
 * The beginning of `frames` that fits in `most` output tokens, when all up to their end are `output`. `count` has counted
 * them since its last mark. A final frame may claim more tokens than frames have shown: these frames then stand for all
 * that were not shown before, in equal parts. What does not fit was generated too, so it stays in the count: the charge goes
 * to the end of what is held.
 */
export const cutFrames = (
  frames: ReadonlyArray<Frame>,
  count: OutputCount,
  output: number,
  most: number
): ReadonlyArray<Frame> => {
  const counted = count.estimate
  count.reset()
  const before = count.estimate
  const worth = counted === before ? 1 : (output - before) / (counted - before)
  const kept: Array<Frame> = []
  let left = most - before
  let full = false
  for (const frame of frames) {
    const [upTo, least] = [count.estimate, count.least]
    count.add(frame)
    if (full) continue
    const cost = (count.estimate - upTo) * worth
    if (cost <= left && count.least <= most && !frame.done) {
      left -= cost
      kept.push(frame)
      continue
    }
    full = true
    // Each part costs at least one token.
    if (left < 1 || least + 1 > most || cost === 0) continue
    const bytes = Buffer.byteLength(textOf(frame)) * Math.min(1, left / cost)
    const part = cutFrame(frame, Math.floor(Math.min(bytes, (most - least) * longestTokenBytes)))
    if (part !== undefined) kept.push(part)
  }
  return kept
}
