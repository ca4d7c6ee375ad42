/**
 * Who may be connected, and how long without a request. Connections are few: 16,384 that say nothing would shut everybody
 * out.
 *
 * *Details* An address (of IPv6 a /64) has a number of connections of its own; those of trusted proxies have not, because
 * they bring everybody's requests. When an address or the house is full, a newcomer takes the place of a random
 * connection that waits for a request: of its own address when that is full, else of all. Connections whose request is
 * under way are never cut for another; when all are, the newcomer is. From half full on, the time that a connection may
 * wait for a request shrinks, down to a second when there is no place left.
 *
 * *Gotchas* A connection waits from its first moment until the whole head of a request is in, and again from the end of its
 * last answer. A head that comes slowly is therefore bounded too. Node's own limits (`ClientTimeouts.ts`) hold as well.
 */
import type { Server } from "node:http"
import type { Socket } from "node:net"
import { DenseList, type Handle } from "../../infra/DenseList.ts"
import { addressGroup } from "./addressGroup.ts"
import { plainAddress } from "../arrival.ts"
import { onRequest } from "./onRequest.ts"

export interface ConnectionLimits {
  /** connections at the same time */
  readonly most: number
  /** of one address */
  readonly perAddress: number
  /** whose connections do not count per address */
  readonly isExempt: (address: string) => boolean
  /** how long one may wait for its first request, and for another, while there is room */
  readonly headMs: number
  readonly idleMs: number
  /** how long it always may; default 1000 */
  readonly leastMs?: number
  /** how often that is looked at; default 500 */
  readonly everyMs?: number
}

export interface Connections {
  readonly open: number
  /** cut since the start, to make room or because they had no request for too long while room was short */
  readonly cut: number
}

interface Connection {
  readonly socket: Socket
  readonly address: DenseList<Connection> | undefined
  /** requests under way */
  underWay: number
  /** since when it has waited for a request; performance.now() */
  since: number
  served: boolean
}

/** How many random ones are looked at before all are. */
const tries = 16

/** A random connection without a request; undefined when all have one. */
const waitingOf = (connections: DenseList<Connection>): Connection | undefined => {
  for (let n = 0; n < tries; n += 1) {
    const found = connections.random
    if (found?.underWay === 0) return found
  }
  return connections.all.find(({ underWay }) => underWay === 0)
}

export const limitConnections = (server: Server, limits: ConnectionLimits): Connections => {
  const all = new DenseList<Connection>()
  const byAddress = new Map<string, DenseList<Connection>>()
  const connections = new WeakMap<Socket, Connection>()
  const leastMs = limits.leastMs ?? 1000
  let cut = 0

  const leaving = new WeakMap<Socket, () => void>()

  const end = (socket: Socket): void => {
    cut += 1
    // Its place is free now; the socket says that it is closed a little later.
    leaving.get(socket)?.()
    socket.destroy()
  }

  /** Makes room for `newcomer` among `others`; without it the newcomer goes. */
  const makeRoom = (others: DenseList<Connection>, newcomer: Socket): boolean => {
    const victim = waitingOf(others)
    end(victim?.socket ?? newcomer)
    return victim !== undefined
  }

  server.on("connection", (socket: Socket) => {
    const address = plainAddress(socket.remoteAddress ?? "")
    const group = limits.isExempt(address) ? undefined : addressGroup(address)
    const own = group === undefined ? undefined : (byAddress.get(group) ?? new DenseList<Connection>())
    if (own !== undefined && own.size >= limits.perAddress && !makeRoom(own, socket)) return
    if (all.size >= limits.most && !makeRoom(all, socket)) return
    const connection: Connection = {
      socket,
      address: own,
      underWay: 0,
      since: performance.now(),
      served: false
    }
    connections.set(socket, connection)
    const seats: ReadonlyArray<readonly [DenseList<Connection>, Handle]> = [
      [all, all.add(connection)],
      ...(own === undefined ? [] : [[own, own.add(connection)] as const])
    ]
    if (group !== undefined && own !== undefined) byAddress.set(group, own)
    const leave = () => {
      for (const [roster, seat] of seats) roster.remove(seat)
      if (group !== undefined && own?.size === 0 && byAddress.get(group) === own) byAddress.delete(group)
    }
    leaving.set(socket, leave)
    socket.once("close", leave)
  })

  onRequest(server, (request, response) => {
    const connection = connections.get(request.socket)
    if (connection === undefined) return
    connection.underWay += 1
    connection.served = true
    response.on("close", () => {
      connection.underWay -= 1
      connection.since = performance.now()
    })
  })

  const look = () => {
    const now = performance.now()
    for (const { address, served, since, socket, underWay } of all.all) {
      if (underWay > 0) continue
      const full = Math.max(all.size / limits.most, (address?.size ?? 0) / limits.perAddress)
      if (full <= 0.5) continue
      const ms = (served ? limits.idleMs : limits.headMs) * 2 * (1 - full)
      if (now - since >= Math.max(leastMs, ms)) end(socket)
    }
  }
  const timer = setInterval(look, limits.everyMs ?? 500)
  timer.unref()
  server.on("close", () => clearInterval(timer))

  return {
    get open() {
      return all.size
    },
    get cut() {
      return cut
    }
  }
}
