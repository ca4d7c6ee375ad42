/**
 * Node takes any list of transfer codings that ends in `chunked` and undoes only that one: the body is not what its
 * sender meant, and where it ends is anybody's guess. Such a request is refused, and with it whatever follows on its
 * connection, which may be part of it.
 */
import type { IncomingMessage } from "node:http"
import type { Socket } from "node:net"

const misframed = new WeakSet<Socket>()

/** What follows `request` on its connection is refused. */
export const distrust = ({ socket }: IncomingMessage): void => void misframed.add(socket)

/** To be told of every request before anything is done about it; answers whether its connection may be kept. */
export const noteFraming = (request: IncomingMessage): boolean => {
  if ((request.headers["transfer-encoding"] ?? "chunked").toLowerCase() !== "chunked") {
    distrust(request)
  }
  return !isMisframed(request)
}

export const isMisframed = (request: IncomingMessage): boolean => misframed.has(request.socket)

/** How often a header was sent, by its name in lower case: Node keeps only the first of some headers and joins others. */
export const headerCount = ({ rawHeaders }: IncomingMessage, name: string): number => {
  let count = 0
  for (let i = 0; i < rawHeaders.length; i += 2) if (rawHeaders[i]?.toLowerCase() === name) count += 1
  return count
}

/**
 * Exactly one `Host`, as HTTP/1.1 wants it; none will do for HTTP/1.0. Nothing here depends on it, but a proxy before
 * us may have chosen by one of two. Node keeps the first of them, and would answer a missing one without a body.
 */
export const isHosted = (request: IncomingMessage): boolean => {
  const hosts = headerCount(request, "host")
  return hosts === 1 || (hosts === 0 && request.httpVersion === "1.0")
}
