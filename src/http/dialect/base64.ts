/** Whether a text is base64. It is read in pieces: V8 may run out of stack when a pattern reads a text of many megabytes. */

/** Characters that the pattern reads in one go. */
const piece = 65_536
const digits = /^[A-Za-z0-9+/]*$/

/** Of any length, also of none. */
export const isBase64 = (text: string): boolean => {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0
  const end = text.length - padding
  for (let at = 0; at < end; at += piece)
    if (!digits.test(text.slice(at, Math.min(end, at + piece)))) return false
  return true
}
