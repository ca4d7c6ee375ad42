/** Makes text safe for a terminal or a log: escapes control characters, and removes the secrets of keys. */
import { escapeControls } from "../domain/text.ts"
import { redactKeys } from "../domain/Key.ts"

/** Returns one line. With `lines`, line feeds are kept, because the gateway wrote them. */
export const printable = (text: string, lines = false): string =>
  redactKeys(escapeControls(text, lines ? "\n" : ""))
