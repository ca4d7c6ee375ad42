/** Finds positions in JSON text without parsing it. */

const quote = 0x22
const backslash = 0x5c

/** Index after the closing quote of the string that starts at `start`, or -1. */
export const endOfString = (text: string, start: number): number => {
  for (let i = start + 1; i < text.length; i++) {
    const code = text.charCodeAt(i)
    if (code === backslash) i++
    else if (code === quote) return i + 1
  }
  return -1
}

/** Index of the first character from `from` on that is not white space, or the length of the text. */
export const afterSpace = (text: string, from: number): number => {
  let i = from
  while (i < text.length && isSpace(text.charCodeAt(i))) i++
  return i
}

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09
