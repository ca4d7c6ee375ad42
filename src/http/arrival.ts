/** The facts of a request before authentication: id, target, and client address. */
import type { IncomingMessage } from "node:http"
import type { BlockList } from "node:net"
import type { Arrival } from "../domain/AuditRecord.ts"
import { clientText, readLength } from "../domain/clientText.ts"
import { pathOf } from "./routes.ts"
import { addressOf, isWithin, peerOf } from "./server/addresses.ts"
import { headerOf, maxRequestId } from "./server/headers.ts"

/**
 * The address of the socket, unless it is a trusted proxy. Then it is the right-most hop of `X-Forwarded-For` that is
 * not a trusted proxy. A hop that is not an address ends the search, because nothing to its left can be trusted.
 */
export const clientIpOf = (
  peer: string | undefined,
  forwardedFor: string | undefined,
  proxies: BlockList
): string => {
  let address = peerOf(peer)
  if (forwardedFor === undefined) return address
  for (const hop of forwardedFor.split(",").toReversed()) {
    if (!isWithin(proxies, address)) return address
    const next = addressOf(hop.trim())
    if (next === undefined) return address
    address = next
  }
  return address
}

/** The client's own request id: printable ASCII. It is only written to the audit row. */
const cleanRequestId = (text: string): string =>
  clientText(text, maxRequestId, (start) => start.replaceAll(/[^\x21-\x7e]/g, ""))

/** The part of a target that is read: 256 characters of it are stored. */
const maxEndpoint = readLength(256)

export const arrivalOf = (
  incoming: IncomingMessage,
  requestId: string,
  arrivedAt: number,
  proxies: BlockList
): Arrival => {
  const own = cleanRequestId(headerOf(incoming, "x-request-id") ?? "")
  return {
    requestId,
    arrivedAt,
    method: incoming.method ?? "",
    endpoint: pathOf(incoming.url ?? "").slice(0, maxEndpoint),
    clientIp: clientIpOf(incoming.socket.remoteAddress, headerOf(incoming, "x-forwarded-for"), proxies),
    ...(own === "" ? {} : { clientRequestId: own })
  }
}
