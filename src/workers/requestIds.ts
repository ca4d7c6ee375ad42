/**
 * Request ids that tell their own worker, and nobody else. When a worker dies, the others find its requests by their ids,
 * in the database and in Redis. This costs no column, no argument and no message for each request.
 *
 * The last 28 bits of the id are a mark: a keyed hash of the other bits. Without the key, ids of one worker do not look
 * alike, so a client does not learn which worker served it. Of a million ids of other workers, 0.004 look like its own.
 */
import { randomInt, randomUUIDv7 } from "node:crypto"

/** Where the mark begins: seven hex digits of the 36 characters. */
const markAt = 29

/** A new key. */
export const makeMark = (): number => randomInt(2 ** 31)

const markOf = (key: number, id: string): string => {
  let hash = key ^ 0x811c9dc5
  for (let i = 0; i < markAt; i += 1) hash = Math.imul(hash ^ id.charCodeAt(i), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16) ^ key, 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return ((hash ^ (hash >>> 16)) >>> 4).toString(16).padStart(7, "0")
}

/** Makes ids with the mark of `key`. */
export const makeRequestIds = (key: number) => (): string => {
  const id = randomUUIDv7()
  return id.slice(0, markAt) + markOf(key, id)
}

export const hasMark = (key: number, id: string): boolean =>
  id.length === 36 && id.slice(markAt) === markOf(key, id)
