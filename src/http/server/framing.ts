/**
 * Node accepts any list of transfer codings that ends in `chunked`, and decodes only that one. The body is then not
 * what its sender meant, and its end is unclear. Such a request is refused, with everything that follows on its
 * connection, which may be part of it.
 */
import type { IncomingMessage } from "node:http"
import type { Socket } from "node:net"

const misframed = new WeakSet<Socket>()

/** Refuses what follows `request` on its connection. */
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
 * Checks for exactly one `Host`, as HTTP/1.1 requires; HTTP/1.0 may have none. The gateway does not use it, but a
 * proxy in front may have routed by one of two. Node keeps the first one, and would answer a missing one without a
 * body.
 */
export const isHosted = (request: IncomingMessage): boolean => {
  const hosts = headerCount(request, "host")
  return hosts === 1 || (hosts === 0 && request.httpVersion === "1.0")
}
