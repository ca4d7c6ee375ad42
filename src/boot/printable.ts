/** Text on its way to a terminal or a log: nothing in it is obeyed, and no key in it keeps its secret. */
import { redactKeys } from "../domain/Key.ts"

/** Control, direction and line characters. */
const obeyed = /[\p{Cc}\p{Bidi_Control}\p{Zl}\p{Zp}]/gu

const visible = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`

/** One line; line feeds are kept where `lines` says that they are the writer's own. */
export const printable = (text: string, lines = false): string =>
  redactKeys(
    text.replaceAll(obeyed, (character) => (lines && character === "\n" ? character : visible(character)))
  )
