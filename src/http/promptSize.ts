/**
 * What a prompt will cost before the backend has counted it: about four UTF-8 bytes to a token, a few tokens of
 * template around each message, a flat thousand for an image (vision encoders cost 256 to 2000).
 */
const bytesPerToken = 4
const tokensPerMessage = 8
const tokensPerImage = 1024

export interface PromptParts {
  /** everything the model reads as text */
  readonly texts: ReadonlyArray<string>
  readonly messages: number
  readonly images: number
}

/** Estimated tokens, at least 1. */
export const estimatePrompt = (parts: PromptParts): number => {
  let bytes = 0
  for (const text of parts.texts) bytes += Buffer.byteLength(text)
  return Math.max(
    1,
    Math.ceil(bytes / bytesPerToken) + parts.messages * tokensPerMessage + parts.images * tokensPerImage
  )
}
