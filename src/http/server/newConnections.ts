/**
 * Limits how fast the new connections of an address are read. A client that connects, sends and leaves costs work with
 * each connection, with or without a key. Clients that keep their connections are not affected.
 *
 * *Details* An address (of IPv6 a /64) may open 300 connections a second, and 1000 at once. The connections beyond that are
 * accepted, but their first byte is read later, up to a second. When the client has left by then, nothing is read.
 * Trusted proxies have no such limit.
 *
 * *Gotchas* The addresses of the 10,000 newest connections are counted.
 */
import type { Server } from "node:http"
import type { Socket } from "node:net"
import { makeLruCache } from "../../gates/keys/LruCache.ts"
import { addressGroup, peerOf } from "./addresses.ts"

export interface NewConnectionLimits {
  readonly isExempt: (address: string) => boolean
  /** default 300 */
  readonly perSecond?: number
  /** default 1000 */
  readonly burst?: number
  /** default 1000 */
  readonly maxDelayMs?: number
}

interface Opened {
  /** connections that may still be opened without a delay; negative when there were too many */
  left: number
  countedAt: number
}

const maxAddresses = 10_000

/**
 * Whether the client has reset the connection. The kernel has no peer address then. Node caches the address in `_peername`,
 * so the cache is cleared first; a test fails when that name changes. The property is not deleted: V8 would then keep all
 * properties of the socket in a table, which takes 2 KB.
 */
const isReset = (socket: Socket): boolean => {
  Reflect.set(socket, "_peername", undefined)
  return socket.remoteAddress === undefined
}

/** Returns a count of the delayed connections. */
export const delayNewConnections = (
  server: Server,
  { burst = 1000, isExempt, maxDelayMs = 1000, perSecond = 300 }: NewConnectionLimits
): { readonly delayed: number } => {
  const byAddress = makeLruCache<Opened>(maxAddresses)
  let delayed = 0

  const delayOf = (address: string): number => {
    const now = performance.now()
    const group = addressGroup(address)
    const opened = byAddress.get(group) ?? { left: burst, countedAt: now }
    byAddress.set(group, opened)
    const filled = opened.left + ((now - opened.countedAt) * perSecond) / 1000
    opened.left = Math.max((-maxDelayMs * perSecond) / 1000, Math.min(burst, filled) - 1)
    opened.countedAt = now
    return opened.left >= 0 ? 0 : (-opened.left * 1000) / perSecond
  }

  server.on("connection", (socket: Socket) => {
    const address = peerOf(socket.remoteAddress)
    const ms = isExempt(address) ? 0 : delayOf(address)
    if (ms === 0) return
    delayed += 1
    // Node itself starts reading in the next tick.
    process.nextTick(() => socket.pause())
    const timer = setTimeout(() => (isReset(socket) ? socket.destroy() : socket.resume()), ms)
    socket.once("close", () => clearTimeout(timer))
  })

  return {
    get delayed() {
      return delayed
    }
  }
}
