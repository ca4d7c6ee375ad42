/** What a terminal, a log viewer or Postgres would obey instead of showing: control, direction and line characters. */
export const controls = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

/** The same text with them spelled out, `\u001b`; those in `kept` stay what they are. */
export const escapeControls = (text: string, kept = ""): string =>
  text.replaceAll(controls, (character) =>
    kept.includes(character) ? character : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`
  )
