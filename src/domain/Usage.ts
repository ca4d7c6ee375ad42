/** Tokens of one request and where the figures come from. */

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
