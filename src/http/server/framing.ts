/**
 * Finds requests whose body has an unclear end. Node accepts any list of transfer codings that ends in `chunked`, but
 * decodes only that one. Such a request is refused, with all later requests of its connection, which may be part of its
 * body.
 */
import type { IncomingMessage } from "node:http"
import type { Socket } from "node:net"
import { headerOf, headerValues } from "./headers.ts"

const misframed = new WeakSet<Socket>()

/** Marks the connection of `request`: its later requests are refused. */
export const markMisframed = ({ socket }: IncomingMessage): void => void misframed.add(socket)

/** Checks a request before any other code handles it. Returns whether its connection may be kept. */
export const checkFraming = (request: IncomingMessage): boolean => {
  if ((headerOf(request, "transfer-encoding") ?? "chunked").toLowerCase() !== "chunked") {
    markMisframed(request)
  }
  return !isMisframed(request)
}

export const isMisframed = (request: IncomingMessage): boolean => misframed.has(request.socket)

/**
 * Checks for exactly one `Host`, as HTTP/1.1 requires; HTTP/1.0 may have none. The gateway does not use it, but a
 * proxy in front may have routed by one of two. Node keeps the first one, and would answer a missing one without a
 * body.
 */
export const isHosted = (request: IncomingMessage): boolean => {
  const hosts = headerValues(request, "host").length
  return hosts === 1 || (hosts === 0 && request.httpVersion === "1.0")
}
