/** The facts of a request before authentication: id, target, and client address. */
import type { IncomingMessage } from "node:http"
import { type BlockList, isIP } from "node:net"
import { randomUUIDv7 } from "node:crypto"
import type { Arrival } from "../domain/AuditRecord.ts"
import { redactKeys } from "../domain/Key.ts"
import { pathOf } from "./routes.ts"
import { isWithin, plainAddress } from "./server/addresses.ts"

/**
 * The address of the socket, unless it is a trusted proxy. Then it is the right-most hop of `X-Forwarded-For` that is
 * not a trusted proxy. A hop that is not an address ends the search, because nothing to its left can be trusted.
 */
export const clientIpOf = (peer: string, forwardedFor: string | undefined, proxies: BlockList): string => {
  let address = plainAddress(peer)
  if (forwardedFor === undefined) return address
  for (const hop of forwardedFor.split(",").toReversed()) {
    if (!isWithin(proxies, address)) return address
    const next = plainAddress(hop.trim())
    if (isIP(next) === 0) return address
    address = next
  }
  return address
}

/**
 * The client's own request id: printable ASCII, at most 64 characters. It is only written to the audit row. Keys are
 * redacted before it is cut, because half a key would not be recognised.
 */
const cleanRequestId = (text: string): string => redactKeys(text.replaceAll(/[^\x21-\x7e]/g, "")).slice(0, 64)

const single = (header: string | ReadonlyArray<string> | undefined): string | undefined =>
  typeof header === "string" ? header : header?.[0]

export const arrivalOf = (incoming: IncomingMessage, arrivedAt: number, proxies: BlockList): Arrival => {
  const own = cleanRequestId(single(incoming.headers["x-request-id"]) ?? "")
  return {
    requestId: randomUUIDv7(),
    arrivedAt,
    method: incoming.method ?? "",
    endpoint: pathOf(incoming.url ?? ""),
    clientIp: clientIpOf(
      incoming.socket.remoteAddress ?? "",
      single(incoming.headers["x-forwarded-for"]),
      proxies
    ),
    ...(own === "" ? {} : { clientRequestId: own })
  }
}
