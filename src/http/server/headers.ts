/**
 * Reads the headers of a client. Every header that the gateway reads is in `clientHeaders` with its maximal length, so no code
 * sees a longer text. No other file reads a header: `test/unit/http/server/headers.test.ts`.
 */
import type { IncomingMessage } from "node:http"
import { readLength } from "../../domain/clientText.ts"
import { maxEndUser } from "../../domain/EndUser.ts"

/** The longest `X-Request-ID` that is stored. */
export const maxRequestId = 64

/** What is read of each header, in characters. */
export const clientHeaders = {
  "accept-encoding": 256,
  "anthropic-version": 256,
  authorization: 256,
  "content-encoding": 256,
  "content-length": 256,
  "content-type": 256,
  expect: 256,
  host: 256,
  traceparent: 256,
  "transfer-encoding": 256,
  upgrade: 256,
  "x-api-key": 256,
  "x-forwarded-for": 1024,
  "x-request-id": readLength(maxRequestId)
} as const

export type ClientHeader = keyof typeof clientHeaders

/** The start of a value; of the addresses that proxies append, the end, because only those at the end can be trusted. */
const bounded = (name: ClientHeader, value: string): string => {
  const most = clientHeaders[name]
  if (value.length <= most || name !== "x-forwarded-for") return value.slice(0, most)
  const end = value.slice(-most)
  // The cut may go through an address.
  return end.slice(end.indexOf(",") + 1)
}

/** A header as Node joins several of its name; of some names Node keeps the first. */
export const headerOf = ({ headers }: IncomingMessage, name: ClientHeader): string | undefined => {
  const value = headers[name]
  const text = typeof value === "string" ? value : value?.join(", ")
  return text === undefined ? undefined : bounded(name, text)
}

/** Not Node's `headersDistinct`: some versions of Node throw on a header `__proto__`. */
const valuesOf = ({ rawHeaders }: IncomingMessage, name: string): ReadonlyArray<string> => {
  const values: Array<string> = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const sent = rawHeaders[i]
    if (sent?.length === name.length && sent.toLowerCase() === name) values.push(rawHeaders[i + 1] ?? "")
  }
  return values
}

/** Each value that was sent for a header. */
export const headerValues = (incoming: IncomingMessage, name: ClientHeader): ReadonlyArray<string> =>
  valuesOf(incoming, name).map((value) => bounded(name, value))

/** The same for a header whose name an operator has set: it names the user of a key. */
export const namedHeaderValues = (incoming: IncomingMessage, name: string): ReadonlyArray<string> =>
  valuesOf(incoming, name).map((value) => value.slice(0, readLength(maxEndUser)))

/** The names of all headers, in lower case. */
export const headerNames = ({ headers }: IncomingMessage): ReadonlyArray<string> => Object.keys(headers)

/**
 * Whether the end of the body is unclear. Node accepts any list of transfer codings that ends in `chunked`, but decodes
 * only that one. A proxy may not know them in HTTP/1.0 (RFC 9112, section 6.1). The request is refused, and its connection ends.
 */
export const isMisframed = (incoming: IncomingMessage): boolean => {
  const codings = headerOf(incoming, "transfer-encoding")
  return codings !== undefined && (codings.toLowerCase() !== "chunked" || incoming.httpVersion === "1.0")
}

/** The target as a path. An absolute one must name the `Host` of the request (RFC 9112, section 3.2.2), else it stays as it came. */
export const pathTarget = (incoming: IncomingMessage): string => {
  const { url = "" } = incoming
  const [, host, path] = url.startsWith("/") ? [] : (/^https?:\/\/([^/?#]+)(\/.*)$/i.exec(url) ?? [])
  return path !== undefined && host?.toLowerCase() === headerOf(incoming, "host")?.toLowerCase() ? path : url
}

/**
 * Checks for exactly one `Host`, as HTTP/1.1 requires; HTTP/1.0 may have none. The gateway only
 * compares an absolute target with it, but a proxy in front may have routed by one of two. Node keeps the first one.
 */
export const isHosted = (incoming: IncomingMessage): boolean => {
  const hosts = headerValues(incoming, "host").length
  return hosts === 1 || (hosts === 0 && incoming.httpVersion === "1.0")
}
