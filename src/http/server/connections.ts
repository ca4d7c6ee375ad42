/**
 * Bounds the connections of clients, so that those which are silent, slow or many cannot shut out others.
 *
 * An address (of IPv6 a /64) has a number of connections, and the server has one. A connection waits until the whole head of a request
 * is in, so a slow head is bounded too. Trusted proxies are no addresses in this sense, because they bring the requests of all. The
 * limits of Node (`ClientTimeouts.ts`) apply as well.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { makeBuckets, type Rate } from "../../infra/TokenBucket.ts"
import { addressGroup, peerOf } from "./addresses.ts"

export interface ConnectionLimits {
  /** connections at the same time */
  readonly max: number
  /** of one address */
  readonly perAddress: number
  /** new connections of one address */
  readonly newPerAddress: Rate
  /** addresses that are trusted proxies */
  readonly isExempt: (address: string) => boolean
  /** how long a client may take no byte of its answer */
  readonly stallMs: number
}

export interface Connections {
  readonly open: number
  /** connections cut since the start to make room */
  readonly cut: number
  /** connections since the start whose first byte was read late */
  readonly delayed: number
  /** address groups that are remembered: those with an open connection */
  readonly addresses: number
}

/** Connections that share a limit. */
interface Group {
  readonly max: number
  readonly open: Set<Socket>
  /** those without a request; the one that has waited longest comes first */
  readonly waiting: Set<Socket>
}

const makeGroup = (max: number): Group => ({ max, open: new Set(), waiting: new Set() })

/** What a client has taken of its answer, and when it last took some. */
interface Reader {
  taken: number
  since: number
}

/** Addresses whose new connections are counted. */
const maxAddresses = 10_000
/** The longest time for which a new connection is not read, in seconds. */
const maxDelayS = 1

const now = () => performance.now()

/**
 * - When a number is reached, a new connection replaces the one that has waited longest for a request: of the same address, else of
 *   all. A connection with a running request is never cut for another one; when all have one, the new connection is cut.
 * - An address may open so many connections a second. The first byte of those beyond is read later, up to a second.
 * - A client that takes no byte of its answer for `stallMs` is cut, and the request ends as for a client that left: otherwise
 *   the request would keep its hold for ever. Answers are written in pieces, so the bytes that the kernel took show whether a client
 *   reads.
 */
export const limitConnections = (server: Server, limits: ConnectionLimits): Connections => {
  const all = makeGroup(limits.max)
  const byAddress = new Map<string, Group>()
  const groupsOf = new WeakMap<Socket, ReadonlyArray<Group>>()
  const readers = new Map<Socket, Reader>()
  const openedBy = makeBuckets({ ...limits.newPerAddress, overdraftS: maxDelayS }, maxAddresses, now)
  let cut = 0
  let delayed = 0

  const leave = (socket: Socket): void => {
    for (const { open, waiting } of groupsOf.get(socket) ?? []) {
      open.delete(socket)
      waiting.delete(socket)
    }
  }

  const end = (socket: Socket): void => {
    cut += 1
    // Its places are free at once; the socket reports its close a little later.
    leave(socket)
    socket.destroy()
  }

  /** Reads the first byte of a connection later when its address has opened too many at once. */
  const delay = (socket: Socket, address: string): void => {
    const bucket = openedBy(address)
    bucket.take()
    const ms = bucket.msUntil(0)
    if (ms === 0) return
    delayed += 1
    // Node itself starts reading in the next tick.
    process.nextTick(() => socket.pause())
    const timer = setTimeout(() => {
      // A write of nothing fails when the client has reset the connection. What it had sent could still be read.
      socket.write("", (error) => void (error ?? socket.resume()))
    }, ms)
    socket.once("close", () => clearTimeout(timer))
  }

  const groupOf = (address: string): Group => {
    const group = byAddress.get(address) ?? makeGroup(limits.perAddress)
    byAddress.set(address, group)
    return group
  }

  server.on("connection", (socket: Socket) => {
    const peer = peerOf(socket.remoteAddress)
    const address = limits.isExempt(peer) ? undefined : addressGroup(peer)
    const groups = address === undefined ? [all] : [groupOf(address), all]
    groupsOf.set(socket, groups)
    socket.once("close", () => {
      leave(socket)
      if (address !== undefined && byAddress.get(address)?.open.size === 0) byAddress.delete(address)
    })
    for (const { max, open, waiting } of groups) {
      if (open.size < max) continue
      const [longest] = waiting
      end(longest ?? socket)
      if (longest === undefined) return
    }
    for (const { open, waiting } of groups) {
      open.add(socket)
      waiting.add(socket)
    }
    if (address !== undefined) delay(socket, address)
  })

  const begin = ({ socket }: IncomingMessage, response: ServerResponse): void => {
    const groups = groupsOf.get(socket) ?? []
    for (const { waiting } of groups) waiting.delete(socket)
    readers.set(socket, { taken: -1, since: now() })
    response.once("close", () => {
      readers.delete(socket)
      for (const { open, waiting } of groups) if (open.has(socket)) waiting.add(socket)
    })
  }
  server.on("request", begin)
  server.on("checkContinue", begin)

  const cutStalled = () => {
    for (const [socket, reader] of readers) {
      // What was written, without what still waits in this process.
      const taken = socket.bytesWritten - socket.writableLength
      if (socket.writableLength === 0 || taken !== reader.taken) {
        reader.taken = taken
        reader.since = now()
      } else if (now() - reader.since >= limits.stallMs) socket.destroy()
    }
  }
  const timer = setInterval(cutStalled, Math.max(20, limits.stallMs / 4))
  timer.unref()
  server.on("close", () => clearInterval(timer))

  return {
    get open() {
      return all.open.size
    },
    get cut() {
      return cut
    },
    get delayed() {
      return delayed
    },
    get addresses() {
      return byAddress.size
    }
  }
}
