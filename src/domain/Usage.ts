/** Tokens of one request and where the figures come from. */
import type { Frame } from "./Frame.ts"

/**
 * `backend`: the final frame said so. `counted`: frames seen plus the prompt estimate, because the stream ended
 * without usable counts. `estimated`: nothing was seen, the prompt estimate stands alone.
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
  /** frames that carried output */
  readonly frames: number
  readonly promptEstimate: number
  readonly promptBytes: number
  /** the bound that was sent as `num_predict` */
  readonly maxTokens: number
}

/** A template may add this much to a prompt that the gateway never sees. */
const templateAllowance = 65_536

const plausible = (count: number | undefined, most: number): count is number =>
  count !== undefined && Number.isSafeInteger(count) && count >= 0 && count <= most

/**
 * The charge for a request whose final frame is in. A count is believed when it could be true: whole, not
 * negative, output not above the bound that was sent, prompt not above its bytes plus a template. Otherwise the
 * gateway's own figure takes its place and the source says `counted` (contract §6).
 */
export const usageOf = (final: Counted, seen: Seen): Usage => {
  // A model that was only loaded or unloaded read and wrote nothing (ollama-wire §1.3).
  if (final.doneReason === "load" || final.doneReason === "unload") {
    return { tokensIn: 0, tokensOut: 0, source: "backend" }
  }
  const inBelieved = plausible(final.promptEvalCount, seen.promptBytes + templateAllowance)
  const outBelieved = plausible(final.evalCount, Math.max(seen.maxTokens, seen.frames))
  return {
    tokensIn: inBelieved ? final.promptEvalCount : seen.promptEstimate,
    tokensOut: outBelieved ? final.evalCount : seen.frames,
    source: inBelieved && outBelieved ? "backend" : "counted"
  }
}
