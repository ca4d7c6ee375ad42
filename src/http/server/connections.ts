/**
 * Limits the connections of clients, so that silent connections cannot shut out new ones.
 *
 * *Details* An address (of IPv6 a /64) has a number of connections; trusted proxies have no such limit, because they
 * bring the requests of all. When an address or the server is full, a new connection replaces a random one that waits
 * for a request: of the same address when that is full, else of all. A connection with a running request is never cut
 * for another one; when all have one, the new connection is cut. When more than half of all places are taken, a
 * connection may wait less long for a request, down to a second when no place is left.
 *
 * *Gotchas* A connection waits from its start until the whole head of a request is in, and again from the end of its
 * last answer. So a slow head is bounded too. The limits of Node (`ClientTimeouts.ts`) apply as well.
 */
import type { Server } from "node:http"
import type { Socket } from "node:net"
import { makeAttached } from "../../infra/v8/Attached.ts"
import { DenseList, type Handle } from "../../infra/v8/DenseList.ts"
import { addressGroup, peerOf } from "./addresses.ts"
import { onRequest } from "./onRequest.ts"

export interface ConnectionLimits {
  /** connections at the same time */
  readonly max: number
  /** of one address */
  readonly perAddress: number
  /** whose connections do not count per address */
  readonly isExempt: (address: string) => boolean
  /** how long a connection may wait for its first request, and for another one, while there is room */
  readonly headMs: number
  readonly idleMs: number
  /** how long it may wait when no place is left; default 1000 */
  readonly minWaitMs?: number
  /** how often this is checked; default 500 */
  readonly everyMs?: number
}

export interface Connections {
  readonly open: number
  /** connections cut since the start, to make room or because they had no request for too long */
  readonly cut: number
  /** address groups that are remembered: those with an open connection */
  readonly addresses: number
}

interface Connection {
  readonly socket: Socket
  readonly address: DenseList<Connection> | undefined
  /** gives its places back; a second call does nothing */
  leave: () => void
  /** running requests */
  running: number
  /** since when it has waited for a request; performance.now() */
  since: number
  served: boolean
}

/** Attached to its socket (`src/infra/v8/Attached.ts`). */
const connections = makeAttached<Socket, Connection>()

const stay = (): void => undefined

/** How many random connections are tried before all are searched. */
const tries = 16

/** A random connection without a request; undefined when all have one. */
const waitingOf = (connections: DenseList<Connection>): Connection | undefined => {
  for (let n = 0; n < tries; n += 1) {
    const found = connections.random
    if (found?.running === 0) return found
  }
  return connections.all.find(({ running }) => running === 0)
}

export const limitConnections = (server: Server, limits: ConnectionLimits): Connections => {
  const all = new DenseList<Connection>()
  const byAddress = new Map<string, DenseList<Connection>>()
  const minWaitMs = limits.minWaitMs ?? 1000
  let cut = 0

  const end = (socket: Socket): void => {
    cut += 1
    // Its place is free at once; the socket reports its close a little later.
    connections.get(socket)?.leave()
    socket.destroy()
  }

  /** Cuts one of `others` to make room for `newcomer`, or cuts `newcomer` when all are busy. */
  const makeRoom = (others: DenseList<Connection>, newcomer: Socket): boolean => {
    const victim = waitingOf(others)
    end(victim?.socket ?? newcomer)
    return victim !== undefined
  }

  server.on("connection", (socket: Socket) => {
    const address = peerOf(socket.remoteAddress)
    const group = limits.isExempt(address) ? undefined : addressGroup(address)
    const own = group === undefined ? undefined : (byAddress.get(group) ?? new DenseList<Connection>())
    if (own !== undefined && own.size >= limits.perAddress && !makeRoom(own, socket)) return
    if (all.size >= limits.max && !makeRoom(all, socket)) return
    const connection: Connection = {
      socket,
      address: own,
      leave: stay,
      running: 0,
      since: performance.now(),
      served: false
    }
    connections.set(socket, connection)
    const places: ReadonlyArray<readonly [DenseList<Connection>, Handle]> = [
      [all, all.add(connection)],
      ...(own === undefined ? [] : [[own, own.add(connection)] as const])
    ]
    if (group !== undefined && own !== undefined) byAddress.set(group, own)
    const leave = () => {
      for (const [list, place] of places) list.remove(place)
      if (group !== undefined && own?.size === 0 && byAddress.get(group) === own) byAddress.delete(group)
    }
    connection.leave = leave
    socket.once("close", leave)
  })

  onRequest(
    server,
    ({ socket }) => {
      const connection = connections.get(socket)
      if (connection === undefined) return
      connection.running += 1
      connection.served = true
    },
    ({ socket }) => {
      const connection = connections.get(socket)
      if (connection === undefined) return
      connection.running -= 1
      connection.since = performance.now()
    }
  )

  const cutWaiting = () => {
    const now = performance.now()
    for (const { address, served, since, socket, running } of all.all) {
      if (running > 0) continue
      const full = Math.max(all.size / limits.max, (address?.size ?? 0) / limits.perAddress)
      if (full <= 0.5) continue
      const ms = (served ? limits.idleMs : limits.headMs) * 2 * (1 - full)
      if (now - since >= Math.max(minWaitMs, ms)) end(socket)
    }
  }
  const timer = setInterval(cutWaiting, limits.everyMs ?? 500)
  timer.unref()
  server.on("close", () => clearInterval(timer))

  return {
    get open() {
      return all.size
    },
    get cut() {
      return cut
    },
    get addresses() {
      return byAddress.size
    }
  }
}
