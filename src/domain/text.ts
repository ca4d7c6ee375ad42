/** Makes text from outside safe for log lines, terminals, columns of Postgres, and names. */

/** Control, direction and line characters. Terminals and log viewers act on them instead of showing them. */
const controls = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu
/**
 * Those, halves of pairs, and characters that nobody sees, with which two names look the same. Joiners and selectors of a form stay:
 * Persian names and emoji are written with them.
 */
const unprintable =
  /[[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\p{Cs}]--\p{Join_Control}--\p{Variation_Selector}]/v

/** Replaces control characters by escapes like `\u001b`, except those in `allowed`. */
export const escapeControls = (text: string, allowed = ""): string =>
  text.replaceAll(controls, (character) =>
    allowed.includes(character) ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

const runOfControls = new RegExp(`${controls.source}+`, "gu")

/** Replaces each run of control characters by `by`, or removes it. */
export const replaceControls = (text: string, by = ""): string => text.replaceAll(runOfControls, by)

/** Whether a text can be shown on one line, as a name must be. */
export const isPrintable = (text: string): boolean => !unprintable.test(text)

/** Replaces what a text column of Postgres refuses: NUL and lone surrogates. Other control characters stay. */
export const storable = (text: string): string => text.toWellFormed().replaceAll("\u0000", "\ufffd")

/** `tokensIn` as `tokens_in`. */
export const snakeCase = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)

/** "1 key", "2 keys" */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`
