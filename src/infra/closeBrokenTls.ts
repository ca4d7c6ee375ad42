/**
 * Closes each TLS connection that this process opens at its first error. Node reports an error of TLS, such as a damaged
 * record or an alert of the server, without closing the connection. So another error may follow, such as a reset. ioredis
 * listens to the first one only, and an error without a listener ends the process
 * (https://github.com/redis/ioredis/pull/962). A connection that stays open after such an error gives no answer either: each
 * command on it would wait for its deadline.
 *
 * *Details* Node tells of each new connection before it is used, so this holds for the connections that clients make on
 * their own: subscribers, sentinels, nodes of a cluster. A connection that becomes TLS later (Postgres) is not among them;
 * its client listens to all errors.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel"
import { TLSSocket } from "node:tls"
import { Effect, Predicate } from "effect"

const channel = "net.client.socket"

const closeAtError = (message: unknown): void => {
  if (!Predicate.hasProperty(message, "socket")) return
  const { socket } = message
  if (socket instanceof TLSSocket) socket.on("error", () => socket.destroy())
}

/** It holds for connections that are made while the scope is open. */
export const closeBrokenTls = Effect.acquireRelease(
  Effect.sync(() => subscribe(channel, closeAtError)),
  () => Effect.sync(() => void unsubscribe(channel, closeAtError))
)
