/** Tokens of one request and where the figures come from. */
import type { Frame } from "./Frame.ts"

/**
 * `backend`: the final frame said so. `counted`: the gateway counted frames and their text, because the stream ended without usable
 * counts, was cut, or its counts are of one run of two. `estimated`: from the prompt alone, or from the time the model had.
 */
export type UsageSource = "backend" | "counted" | "estimated"

export interface Usage {
  readonly tokensIn: number
  readonly tokensOut: number
  readonly source: UsageSource
}

export const noUsage: Usage = { tokensIn: 0, tokensOut: 0, source: "estimated" }

export const totalTokens = (usage: Usage): number => usage.tokensIn + usage.tokensOut

/** What the end of an answer says of its cost. */
export type Counted = Pick<Frame, "doneReason" | "promptEvalCount" | "evalCount">

/** What the gateway itself saw of a request; bounds what it believes of the backend's counts. */
export interface Seen {
  /** output tokens, as far as frames tell */
  readonly frames: number
  /** the smallest number of output tokens that the text in the frames can be; not less than `frames` */
  readonly least: number
  /** output tokens, as far as the text in the frames tells; not less than `least` */
  readonly estimate: number
  /** of them, those of a first run whose counts the final frame does not have; 0 when there was one run */
  readonly firstRun: number
  readonly promptEstimate: number
  readonly promptBytes: number
  /** the bound of all runs together: what was sent as `num_predict`, once for each */
  readonly maxTokens: number
}

/** A template may add this much to a prompt that the gateway never sees. */
const templateAllowance = 65_536

const plausible = (count: number | undefined, least: number, most: number): count is number =>
  count !== undefined && Number.isSafeInteger(count) && count >= least && count <= most

/** A model that was only loaded or unloaded read and wrote nothing. An answer with output is none of the two. */
const isLoad = ({ doneReason }: Counted, { frames }: Seen): boolean =>
  (doneReason === "load" || doneReason === "unload") && frames === 0

/**
 * Output tokens of all runs by the final frame's count; undefined when that cannot be true. A count below what the text
 * must have been is raised to it. Each frame is at least one token: Ollama writes one for each token that it does not keep
 * back, the end token has none, and a piece of text that a parser kept until the end belongs to tokens without a frame.
 */
export const believedOutput = (final: Counted, seen: Seen): number | undefined => {
  if (isLoad(final, seen)) return 0
  const { firstRun, least } = seen
  const most = Math.max(seen.maxTokens, seen.frames) - firstRun
  return plausible(final.evalCount, 0, most) ? Math.max(final.evalCount + firstRun, least) : undefined
}

/**
 * The charge for a request whose final frame is in. A count is believed when it could be true: whole, not
 * negative, output not above the bound that was sent and not below what the frames show, prompt not above its bytes plus a
 * template. Otherwise the gateway's own figure takes its place and the source says `counted`.
 *
 * Of an answer in two runs the final frame counts the second alone. That run has read what the first one wrote, so
 * the first run's output is moved from the count of the prompt to the count of the output: each token is charged once.
 */
export const usageOf = (final: Counted, seen: Seen): Usage => {
  if (isLoad(final, seen)) return { tokensIn: 0, tokensOut: 0, source: "backend" }
  const { firstRun } = seen
  const inBelieved = plausible(
    final.promptEvalCount,
    firstRun,
    seen.promptBytes + templateAllowance + firstRun
  )
  const output = believedOutput(final, seen)
  return {
    tokensIn: inBelieved ? final.promptEvalCount - firstRun : seen.promptEstimate,
    tokensOut: output ?? seen.estimate,
    // With one run this is the backend's own count; a sum of two runs never is.
    source: inBelieved && output !== undefined && output === final.evalCount ? "backend" : "counted"
  }
}

/** `usage` with at most `most` output tokens: nobody is charged for more than was held for them. */
export const atMost = (usage: Usage, most: number): Usage =>
  usage.tokensOut <= most ? usage : { ...usage, tokensOut: Math.max(0, most), source: "counted" }
