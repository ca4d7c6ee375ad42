/**
 * Makes a text of a client short and harmless before it is stored or logged: without control characters, lone surrogates and
 * secrets of keys.
 *
 * The text is cut before anything else looks at it, so its size costs nothing, and it is cut again at the end. Control
 * characters go before redacting, because they may split a key. More is read than kept, because a key with escapes is longer
 * than its redacted form. The first cut, or that of a header (`http/server/headers.ts`), may leave a part of a key that is too
 * short to be recognised. So a text that is longer than what is kept loses such a part at its end, too.
 */
import { redactCutKeys, redactKeys, shorterThanKey } from "./Key.ts"
import { replaceControls } from "./text.ts"

/** How many characters are read of a text of which `most` are kept. */
export const readLength = (most: number): number => 8 * most

/** Nearly every text matches: nothing to remove, nothing to cut, and too short to contain a key. */
const plain = new RegExp(`^[\\x21-\\x7e]{0,${shorterThanKey}}$`)

/** At most `most` characters of `text`. `clean` removes the characters that are not kept. */
export const clientText = (
  text: string,
  most: number,
  clean: (text: string) => string = replaceControls
): string => {
  if (text.length <= most && plain.test(text)) return text
  const read = clean(text.slice(0, readLength(most)).toWellFormed())
  const redacted = text.length > most ? redactCutKeys(read) : redactKeys(read)
  return redacted.slice(0, most).toWellFormed()
}
