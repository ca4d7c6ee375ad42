/** Text from outside, made safe for the place it goes to: a log line, a terminal, a column of Postgres, a name. */

/** Control, direction and line characters: a terminal or a log viewer obeys them instead of showing them. */
const controls = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu
const controlOrLoneSurrogate = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}\p{Cs}]/u

/** Replaces control characters by escapes like `\u001b`, except those in `allowed`. */
export const escapeControls = (text: string, allowed = ""): string =>
  text.replaceAll(controls, (character) =>
    allowed.includes(character) ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

const runOfControls = new RegExp(`${controls.source}+`, "gu")

/** Replaces each run of control characters; by nothing, unless `by` is given. */
export const replaceControls = (text: string, by = ""): string => text.replaceAll(runOfControls, by)

/** Whether all of a text can be shown on one line, as a name must be. */
export const isPrintable = (text: string): boolean => !controlOrLoneSurrogate.test(text)

/** What a text column of Postgres takes: no NUL and no lone surrogate. Line feeds and other controls stay. */
export const storable = (text: string): string => text.toWellFormed().replaceAll("\u0000", "\ufffd")
