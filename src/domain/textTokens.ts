/** Estimates the number of tokens of a text, in a prompt and in an answer. */

/** UTF-8 bytes for each token. `http/dialect/promptEstimate.ts` has the measured error of this estimate. */
export const bytesPerToken = 4

export const tokensOfBytes = (bytes: number): number => Math.ceil(bytes / bytesPerToken)
