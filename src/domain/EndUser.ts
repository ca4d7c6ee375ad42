/**
 * For whom a request is made. Behind one key may sit many people, and only the client knows which of them asks. The gateway
 * stores the claim in the audit and does not check it, so it decides nothing.
 */
import { redactKeys } from "./Key.ts"
import { replaceControls } from "./text.ts"

/** The longest claim that is stored, in UTF-16 units. */
export const maxEndUser = 128
/** Far more than is stored. Redacting comes before cutting, so that no half of a secret is left. */
const maxRead = 8192

/** The claim without control characters, secrets of keys, and blanks at its ends; undefined when nothing is left. */
export const endUserOf = (claim: string | undefined): string | undefined => {
  if (claim === undefined) return undefined
  const text = redactKeys(replaceControls(claim.trim().slice(0, maxRead).toWellFormed()))
    .trim()
    .slice(0, maxEndUser)
    .toWellFormed()
    .trim()
  return text === "" ? undefined : text
}
