/**
 * For whom a request is made. Behind one key may sit many people, and only the client knows which of them asks. The gateway
 * stores the claim in the audit and does not check it, so it decides nothing.
 */
import { clientText } from "./clientText.ts"

/** The longest claim that is stored, in UTF-16 units. */
export const maxEndUser = 128
/** The claim without control characters, secrets of keys, and blanks at its ends; undefined when nothing is left. */
export const endUserOf = (claim: string | undefined): string | undefined => {
  if (claim === undefined) return undefined
  const text = clientText(claim.trim(), maxEndUser).trim()
  return text === "" ? undefined : text
}
