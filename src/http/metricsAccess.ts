/**
 * Decides who may read `/metrics`: a scraper on this machine.
 *
 * Three conditions must hold. The socket address is loopback. `Host` names loopback, so that a page whose name was
 * rebound to 127.0.0.1 cannot read the answer. The request has only headers that a scraper or a browser sends by
 * itself; any other header counts as a sign of a proxy. The list contains allowed headers, because a list of proxy
 * headers would never be complete.
 */
import type { IncomingMessage } from "node:http"
import { BlockList, isIP } from "node:net"
import { isWithin, peerOf } from "./server/addresses.ts"
import { headerNames, headerOf } from "./server/headers.ts"

const loopback = new BlockList()
loopback.addSubnet("127.0.0.0", 8, "ipv4")
loopback.addAddress("::1", "ipv6")

const isLoopback = (address: string): boolean => isWithin(loopback, peerOf(address))

/** `localhost`, 127.0.0.0/8 or `[::1]`, with or without a port. */
const isLoopbackHost = (host: string): boolean => {
  const [, bracketed, plain] = /^(?:\[([^\]]+)\]|([^:]+))(?::\d{1,5})?$/.exec(host) ?? []
  return bracketed !== undefined
    ? isIP(bracketed) === 6 && isLoopback(bracketed)
    : plain !== undefined && (plain.toLowerCase() === "localhost" || (isIP(plain) === 4 && isLoopback(plain)))
}

const ownHeader =
  /^(?:host|connection|keep-alive|user-agent|accept|accept-(?:encoding|language|charset)|authorization|cache-control|pragma|content-length|content-type|cookie|dnt|origin|priority|referer|te|upgrade-insecure-requests|x-request-id|traceparent|tracestate|baggage|if-[a-z-]+|sec-[a-z-]+|x-prometheus-[a-z-]+)$/

export const mayReadMetrics = (incoming: IncomingMessage): boolean =>
  isLoopback(incoming.socket.remoteAddress ?? "") &&
  isLoopbackHost(headerOf(incoming, "host") ?? "") &&
  headerNames(incoming).every((name) => ownHeader.test(name))
