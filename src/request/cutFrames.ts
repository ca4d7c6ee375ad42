/** Cuts frames that cost more than is left. */
import { StringDecoder } from "node:string_decoder"
import type { Frame } from "../domain/Frame.ts"
import { longestTokenBytes, type OutputCount, textOf } from "./OutputCount.ts"

/** The first `bytes` bytes of a text, without an incomplete character at the end. */
const beginningOf = (text: string, bytes: number): string =>
  new StringDecoder("utf8").write(Buffer.from(text).subarray(0, Math.max(0, bytes)))

/**
 * The reasoning and text in the first `bytes` of a frame; undefined when there is none. Tool calls are left out, because a
 * part of one is useless, and log probabilities, because they may belong to the text that was cut.
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
 * The beginning of `frames` that fits in `limit` output tokens. The answer up to the end of `frames` has `output` tokens,
 * and `count` has counted them since its last mark. A final frame may claim more tokens than the frames show: each frame
 * then costs proportionally more. Frames that do not fit were generated too, so they stay in the count, and the charge is
 * the whole hold.
 */
export const cutFrames = (
  frames: ReadonlyArray<Frame>,
  count: OutputCount,
  output: number,
  limit: number
): ReadonlyArray<Frame> => {
  const counted = count.estimate
  count.reset()
  const before = count.estimate
  const factor = counted === before ? 1 : (output - before) / (counted - before)
  const fitting: Array<Frame> = []
  let left = limit - before
  let full = false
  for (const frame of frames) {
    const [upTo, least] = [count.estimate, count.least]
    count.add(frame)
    if (full) continue
    const cost = (count.estimate - upTo) * factor
    if (cost <= left && count.least <= limit && !frame.done) {
      left -= cost
      fitting.push(frame)
      continue
    }
    full = true
    // Each part costs at least one token.
    if (left < 1 || least + 1 > limit || cost === 0) continue
    const bytes = Buffer.byteLength(textOf(frame)) * Math.min(1, left / cost)
    const part = cutFrame(frame, Math.floor(Math.min(bytes, (limit - least) * longestTokenBytes)))
    if (part !== undefined) fitting.push(part)
  }
  return fitting
}
