/** Control, direction and line characters: a terminal or a log viewer obeys them instead of showing them. */
export const controls = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

/** Replaces them by escapes like `\u001b`, except those in `allowed`. */
export const escapeControls = (text: string, allowed = ""): string =>
  text.replaceAll(controls, (character) =>
    allowed.includes(character) ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )
