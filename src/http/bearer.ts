/** Reads the key from the only place it may be in: one `Authorization: Bearer <key>` header (RFC 6750, section 2.1). */
import type { IncomingMessage } from "node:http"

/** Scheme in any case, exactly one space; what follows is the key store's to judge. */
const bearer = /^bearer ([^\s]+)$/i

/**
 * The secret, or undefined for anything but exactly one well-formed header. Node keeps only the first of several
 * Authorization headers, so they are counted in the raw list.
 */
export const bearerOf = (incoming: IncomingMessage): string | undefined => {
  let value: string | undefined
  for (let i = 0; i + 1 < incoming.rawHeaders.length; i += 2) {
    if (incoming.rawHeaders[i]?.toLowerCase() !== "authorization") continue
    if (value !== undefined) return undefined
    value = incoming.rawHeaders[i + 1]
  }
  return value === undefined ? undefined : bearer.exec(value)?.[1]
}
