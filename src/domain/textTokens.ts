/** How many tokens a text is estimated at, in a prompt and in an answer. */

/** UTF-8 bytes to a token. What the estimate is worth was measured: `http/promptSize.ts` has the figures. */
export const bytesPerToken = 4

export const tokensOfBytes = (bytes: number): number => Math.ceil(bytes / bytesPerToken)
