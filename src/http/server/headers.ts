/**
 * Reads the headers of a client. Every header that the gateway reads is in `clientHeaders` with its maximal length, so no code
 * sees a longer text. No other file reads a header: `test/unit/http/server/headers.test.ts`.
 */
import type { IncomingMessage } from "node:http"
import { readLength } from "../../domain/clientText.ts"
import { maxEndUser } from "../../domain/EndUser.ts"

interface Bound {
  /** maximal length, in characters */
  readonly most: number
  /** What is read of a longer value: its start, the elements of a list at its end, or nothing; "refused" is a 400. */
  readonly longer: "start" | "end" | "nothing" | "refused"
}

/** The longest `X-Request-ID` that is stored. */
export const maxRequestId = 64

export const clientHeaders = {
  "accept-encoding": { most: 256, longer: "nothing" },
  authorization: { most: 256, longer: "nothing" },
  "content-encoding": { most: 256, longer: "refused" },
  "content-length": { most: 256, longer: "start" },
  "content-type": { most: 256, longer: "refused" },
  expect: { most: 256, longer: "start" },
  host: { most: 256, longer: "start" },
  traceparent: { most: 256, longer: "nothing" },
  "transfer-encoding": { most: 256, longer: "start" },
  "x-api-key": { most: 256, longer: "nothing" },
  // Proxies append to it, so the addresses at its end are those that can be trusted.
  "x-forwarded-for": { most: 1024, longer: "end" },
  "x-request-id": { most: readLength(maxRequestId), longer: "start" }
} as const satisfies Readonly<Record<string, Bound>>

export type ClientHeader = keyof typeof clientHeaders

/** A header whose name an operator has set: it names the user of a key. */
const namedHeader: Bound = { most: readLength(maxEndUser), longer: "start" }

const bounded = (value: string, { longer, most }: Bound): string | undefined => {
  if (value.length <= most) return value
  switch (longer) {
    case "start":
      return value.slice(0, most)
    case "end": {
      const end = value.slice(-most)
      // The cut may go through an element.
      return end.slice(end.indexOf(",") + 1)
    }
    case "nothing":
    case "refused":
      return undefined
  }
}

const valueOf = ({ headers }: IncomingMessage, name: string): string | undefined => {
  const value = headers[name]
  return typeof value === "string" ? value : value?.join(", ")
}

const read = (incoming: IncomingMessage, name: string, bound: Bound): string | undefined => {
  const value = valueOf(incoming, name)
  return value === undefined ? undefined : bounded(value, bound)
}

/** A header as Node joins several of its name; of some names Node keeps the first. */
export const headerOf = (incoming: IncomingMessage, name: ClientHeader): string | undefined =>
  read(incoming, name, clientHeaders[name])

/** The same for a header whose name an operator has set. */
export const namedHeaderOf = (incoming: IncomingMessage, name: string): string | undefined =>
  read(incoming, name, namedHeader)

/** Each value that was sent for a header. */
export const headerValues = ({ rawHeaders }: IncomingMessage, name: ClientHeader): ReadonlyArray<string> => {
  const values: Array<string> = []
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.toLowerCase() === name)
      values.push(bounded(rawHeaders[i + 1] ?? "", clientHeaders[name]) ?? "")
  }
  return values
}

/** The names of all headers, in lower case. */
export const headerNames = ({ headers }: IncomingMessage): ReadonlyArray<string> => Object.keys(headers)

const refusedWhenLong = Object.entries<Bound>(clientHeaders).filter(([, { longer }]) => longer === "refused")

/** `content-type` is `Content-Type`. */
const titled = (name: string): string => name.replaceAll(/\b[a-z]/g, (letter) => letter.toUpperCase())

/** Why a request is refused for the length of a header; undefined when it is not. */
export const tooLongHeader = (incoming: IncomingMessage): string | undefined => {
  for (const [name, { most }] of refusedWhenLong) {
    if ((valueOf(incoming, name)?.length ?? 0) > most)
      return `${titled(name)}: expected at most ${most} characters`
  }
  return undefined
}

/**
 * Whether the end of the body is unclear. Node accepts any list of transfer codings that ends in `chunked`, but decodes
 * only that one. A proxy may not know them in HTTP/1.0 (RFC 9112, section 6.1). The request is refused, and its connection ends.
 */
export const isMisframed = (incoming: IncomingMessage): boolean => {
  const codings = headerOf(incoming, "transfer-encoding")
  return codings !== undefined && (codings.toLowerCase() !== "chunked" || incoming.httpVersion === "1.0")
}

/**
 * Checks for exactly one `Host`, as HTTP/1.1 requires; HTTP/1.0 may have none. The gateway does not use it, but a
 * proxy in front may have routed by one of two. Node keeps the first one.
 */
export const isHosted = (incoming: IncomingMessage): boolean => {
  const hosts = headerValues(incoming, "host").length
  return hosts === 1 || (hosts === 0 && incoming.httpVersion === "1.0")
}
