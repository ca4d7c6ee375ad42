/**
 * The shape of an API key: a three-character namespace ending in `_`, then 41 base62 characters. The first 12
 * characters are the public prefix, the other 32 the secret (spec.md, API key).
 */
import { randomBytes } from "node:crypto"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const prefixLength = 12
const keyLength = 44

export const defaultNamespace = "tg_"

/** Whether `text` could be a key of `namespace`; the only thing looked at before any I/O. */
export const keyShape = (namespace: string): RegExp =>
  new RegExp(`^${namespace}[0-9A-Za-z]{${keyLength - namespace.length}}$`)

export const prefixOf = (key: string): string => key.slice(0, prefixLength)

/** Uniform base62 by rejection: a byte of 248 or more would favour the first eight letters. */
const base62 = (length: number): string => {
  let text = ""
  while (text.length < length) {
    for (const byte of randomBytes(length - text.length + 16)) {
      if (byte < 248 && text.length < length) text += alphabet.charAt(byte % 62)
    }
  }
  return text
}

/** A new key: 53 bits of public prefix, 190 bits of secret. */
export const mintKey = (namespace: string): string => namespace + base62(keyLength - namespace.length)

/**
 * A prefix from its `_` on, and so much of a secret that it is one: keys are also pasted with an end missing, and one
 * right behind another.
 */
const keyLike = /(_[0-9A-Za-z]{9})[0-9A-Za-z]{16,}/g

/** What looks like a key, of whatever namespace, wherever it stands: the public prefix stays, the secret goes. */
export const redactKeys = (text: string): string => text.replaceAll(keyLike, "$1…")
