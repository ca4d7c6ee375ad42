/**
 * For whom a request is made. Behind one key may sit many people, and only the client knows which of them asks. The gateway
 * stores the claim in the audit and does not check it. It decides something only for a key whose users have limits: then it is
 * the header that the operator trusts, and nothing of the body.
 */
import { createHash } from "node:crypto"
import { clientText } from "./clientText.ts"
import { replaceControls } from "./text.ts"

/** The longest claim that is stored, in UTF-16 units. */
export const maxEndUser = 128
/** One person has one name, however it is typed. Case stays: it may be another person. */
const clean = (text: string): string => replaceControls(text).normalize("NFC").trim()

/** The claim in NFC without control characters, secrets of keys, and blanks at its ends; undefined when nothing is left. */
export const endUserOf = (claim: string | null | undefined): string | undefined => {
  if (claim === undefined || claim === null) return undefined
  const text = clientText(claim.trim(), maxEndUser, clean).trim()
  return text === "" ? undefined : text
}

const digestOf = (accountId: string, name: string): string =>
  createHash("sha256").update(`${accountId}\n${name}`).digest("hex").slice(0, 32)

/** What is stored instead of a name (`--hash-users`). It is the same for all keys of an account, and only there. */
export const hashedUser = (accountId: string, name: string): string => `sha256:${digestOf(accountId, name)}`

/** The forms in which an account may have a name: clear, and as a hash. */
export const storedNames = (accountId: string, name: string): ReadonlyArray<string> => [
  name,
  hashedUser(accountId, name)
]

/** Whether a stored name is that of an end user of an account, whom an operator names. */
export const isEndUser = (stored: string | null, user: string, accountId = ""): boolean =>
  stored !== null && [user, ...storedNames(accountId, endUserOf(user) ?? user)].includes(stored)

/**
 * The id of the account of an end user, in the form of a UUID: of the account of the key, and of the name as it is stored.
 * All requests without a name share one.
 */
export const userAccountId = (accountId: string, endUser = ""): string =>
  digestOf(accountId, endUser).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")
