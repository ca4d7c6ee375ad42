/** The tokens of one request, and the source of the figures. */
import type { Frame } from "./Frame.ts"

/**
 * `backend`: the counts of the final frame. `counted`: the gateway counted frames and their text, because the stream had
 * no usable counts, was cut, or has the counts of only one of two runs. `estimated`: from the prompt, or from
 * what the request holds.
 */
export type UsageSource = "backend" | "counted" | "estimated"

export interface Usage {
  readonly tokensIn: number
  readonly tokensOut: number
  readonly source: UsageSource
  /** of `tokensIn`: tokens that the backend had in its prefix cache; absent when it did not say. They are charged as the others. */
  readonly tokensCached?: number
}

export const noUsage: Usage = { tokensIn: 0, tokensOut: 0, source: "estimated" }

export const totalTokens = (usage: Usage): number => usage.tokensIn + usage.tokensOut

/** The fields of a final frame that decide the charge, and what the queue learns. */
export type Counted = Pick<
  Frame,
  "doneReason" | "loadDuration" | "promptEvalCount" | "promptEvalCachedCount" | "evalCount"
>

/** What the gateway itself counted. The backend's counts are checked against it. */
export interface Seen {
  /** output tokens by the number of frames */
  readonly frames: number
  /** the smallest possible number of output tokens for the text; at least `frames` */
  readonly least: number
  /** estimated output tokens of the text; at least `least` */
  readonly estimate: number
  /** tokens of a first run, which the final frame may not count; 0 when there was one run */
  readonly firstRun: number
  readonly promptEstimate: number
  readonly promptBytes: number
  /** the bound of all runs together: `num_predict` for each */
  readonly maxOutput: number
}

/** Tokens that a model's template may add to a prompt. The gateway does not see them. */
const templateAllowance = 65_536

const plausible = (count: number | undefined, least: number, most: number): count is number =>
  count !== undefined && Number.isSafeInteger(count) && count >= least && count <= most

/** Whether the model was only loaded or unloaded, and read and wrote nothing. */
const isLoad = ({ doneReason }: Counted, { frames }: Seen): boolean =>
  (doneReason === "load" || doneReason === "unload") && frames === 0

/** The tokens of a first run that the final frame does not count. Servers that tell cached tokens count all runs. */
const uncounted = ({ promptEvalCachedCount }: Counted, { firstRun }: Seen): number =>
  promptEvalCachedCount === undefined ? firstRun : 0

/**
 * The output tokens of all runs by the count of the final frame; undefined when that count is impossible. A count below
 * the minimum for the text is raised to that minimum. Each frame has at least one token: Ollama writes one frame for each
 * token that it does not hold back, and none for the end token.
 */
export const believedOutput = (final: Counted, seen: Seen): number | undefined => {
  if (isLoad(final, seen)) return 0
  const { least } = seen
  const firstRun = uncounted(final, seen)
  const most = Math.max(seen.maxOutput, seen.frames) - firstRun
  return plausible(final.evalCount, 0, most) ? Math.max(final.evalCount + firstRun, least) : undefined
}

/**
 * The charge for a request whose final frame is in. A count is used if it is possible: a whole number, the prompt at
 * most its bytes plus a template, the output at most the bound that was sent and at least what the frames show. Otherwise
 * the gateway's own figure is used, and the source is `counted`.
 *
 * After two runs, the final frame of a server up to 0.33.1 counts the second run only. That run has read the output of the first
 * one, so this output is moved from the count of the prompt to the count of the output. Each token is charged once.
 */
export const usageOf = (final: Counted, seen: Seen): Usage => {
  if (isLoad(final, seen)) return { tokensIn: 0, tokensOut: 0, source: "backend" }
  const firstRun = uncounted(final, seen)
  const inBelieved = plausible(
    final.promptEvalCount,
    firstRun,
    seen.promptBytes + templateAllowance + firstRun
  )
  const output = believedOutput(final, seen)
  const tokensIn = inBelieved ? final.promptEvalCount - firstRun : seen.promptEstimate
  return {
    tokensIn,
    // A part cannot be more than the whole, and a part of a count that is not believed is not known.
    ...(inBelieved && final.promptEvalCachedCount !== undefined
      ? { tokensCached: Math.min(tokensIn, final.promptEvalCachedCount) }
      : {}),
    tokensOut: output ?? seen.estimate,
    // The sum of two runs is not the backend's own count.
    source: inBelieved && output !== undefined && output === final.evalCount ? "backend" : "counted"
  }
}

/** Limits the output tokens to `limit`, because a request is not charged for more than it held. */
export const atMost = (usage: Usage, limit: number): Usage =>
  usage.tokensOut <= limit ? usage : { ...usage, tokensOut: Math.max(0, limit), source: "counted" }

/** UTF-8 bytes for each token. `http/dialect/promptEstimate.ts` has the measured error of this estimate. */
export const bytesPerToken = 4

/** Tokens of the template for one message, with its role. */
export const tokensPerMessage = 8

export const tokensOfBytes = (bytes: number): number => Math.ceil(bytes / bytesPerToken)
