/** Text on its way to a terminal or a log: nothing in it is obeyed, and no key in it keeps its secret. */
import { escapeControls } from "../domain/controls.ts"
import { redactKeys } from "../domain/Key.ts"

/** One line; line feeds are kept where `lines` says that they are the writer's own. */
export const printable = (text: string, lines = false): string =>
  redactKeys(escapeControls(text, lines ? "\n" : ""))
