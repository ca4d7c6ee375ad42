/** Makes text safe for a log or a terminal: removes the secrets of keys, and escapes control characters. */
import { escapeControls } from "../domain/text.ts"
import { redactKeys } from "../domain/Key.ts"

/** Returns one line. With `lines`, line feeds are kept, because the gateway wrote them. */
export const redact = (text: string, lines = false): string =>
  redactKeys(escapeControls(text, lines ? "\n" : ""))
