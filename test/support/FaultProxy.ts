/**
 * A bad network between a client and a server: a TCP proxy on loopback that is slow, silent, cuts, and loses what a
 * test tells it to lose. Faults hold for all connections, open and new, until `heal`.
 *
 * *Gotchas* A network never loses bytes in the middle of a connection: what passed through a black hole is reset by
 * `heal`. A connection that is cut ends for the client with a reset and for the server with an end, so that whatever
 * was sent before is executed.
 */
import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Socket } from "node:net"
import { Effect, type Scope } from "effect"
import { FaultWay, type Found, type Weather } from "./FaultWay.ts"

export type Direction = "toServer" | "toClient"

export type Target = { readonly host: string; readonly port: number } | { readonly path: string }

/** Bytes to wait for, however they are split into reads; a predicate sees one read at a time. */
export type Pattern = string | Buffer | ((bytes: Buffer) => boolean)

export interface FaultProxy {
  readonly port: number
  /** connections cut so far by `cutAfter` and `loseReply` */
  readonly cuts: number
  /** every byte arrives so much later; both directions unless told */
  latency(ms: number, direction?: Direction): Effect.Effect<void>
  /** writes of at most so many bytes, with a pause between them */
  slice(bytes: number, delayMs?: number, direction?: Direction): Effect.Effect<void>
  /** accepts everything and passes nothing on, an end neither */
  blackHole(direction?: Direction): Effect.Effect<void>
  /** keeps everything and delivers it late, when healed */
  stall(direction?: Direction): Effect.Effect<void>
  /** new connections are reset */
  readonly refuse: Effect.Effect<void>
  /** resets all open connections, on both sides */
  readonly reset: Effect.Effect<void>
  /** Passes on all up to the pattern, and the pattern itself unless `drop`, then cuts. `times` connections, default 1. */
  cutAfter(
    pattern: Pattern,
    direction: Direction,
    options?: { readonly drop?: boolean; readonly times?: number }
  ): Effect.Effect<void>
  /** Passes on the request with the pattern, waits for what the server says next, loses it, and cuts. */
  loseReply(request: Pattern, times?: number): Effect.Effect<void>
  readonly heal: Effect.Effect<void>
  /** new connections go to another server, as after a failover behind one name */
  moveTo(target: Target): Effect.Effect<void>
}

interface Trap {
  readonly pattern: Pattern
  readonly direction: Direction
  readonly does: "pass" | "drop" | "loseReply"
  left: number
}

/** Finds a pattern in a stream of reads, also across them. */
const makeFinder = (pattern: Pattern) => {
  if (typeof pattern === "function") {
    return (bytes: Buffer): Found | undefined => (pattern(bytes) ? { from: 0, to: bytes.length } : undefined)
  }
  const wanted = Buffer.from(pattern)
  let tail: Buffer = Buffer.alloc(0)
  return (bytes: Buffer): Found | undefined => {
    const seen = Buffer.concat([tail, bytes])
    const at = seen.indexOf(wanted) - tail.length
    const found = seen.includes(wanted) ? { from: Math.max(0, at), to: at + wanted.length } : undefined
    tail = seen.subarray(Math.max(0, seen.length - wanted.length + 1))
    return found
  }
}

const fair = (): Weather => ({ latencyMs: 0, slice: undefined, hole: false, stalled: false })

const directions: ReadonlyArray<Direction> = ["toServer", "toClient"]

class Link {
  readonly ways: Readonly<Record<Direction, FaultWay>>
  readonly server: Socket
  readonly #finders = new Map<Trap, (bytes: Buffer) => Found | undefined>()
  #losing = false

  readonly client: Socket
  readonly proxy: Proxy

  constructor(client: Socket, proxy: Proxy) {
    this.client = client
    this.proxy = proxy
    this.server = connect({ ...proxy.target, allowHalfOpen: true })
    const way = (direction: Direction, from: Socket, to: Socket) =>
      new FaultWay({
        from,
        to,
        weather: proxy.weather[direction],
        watch: (bytes) => this.#watch(direction, bytes),
        cut: () => this.#cut()
      })
    this.ways = {
      toServer: way("toServer", client, this.server),
      toClient: way("toClient", this.server, client)
    }
    for (const [socket, other, direction] of [
      [client, this.server, "toServer"],
      [this.server, client, "toClient"]
    ] as const) {
      socket.setNoDelay(true)
      socket.on("error", () => {
        if (proxy.weather[direction].hole) this.ways[direction].torn = true
        else other.resetAndDestroy()
      })
      socket.on("close", () => {
        this.ways.toServer.wake()
        this.ways.toClient.wake()
      })
    }
  }

  reset(): void {
    for (const socket of [this.client, this.server]) if (!socket.destroyed) socket.resetAndDestroy()
  }

  #watch(direction: Direction, bytes: Buffer): number | undefined {
    if (direction === "toClient" && this.#losing) return 0
    for (const trap of this.proxy.traps) {
      if (trap.direction !== direction || trap.left === 0) continue
      const find = this.#finders.get(trap) ?? makeFinder(trap.pattern)
      this.#finders.set(trap, find)
      const found = find(bytes)
      if (found === undefined) continue
      trap.left -= 1
      if (trap.does !== "loseReply") return trap.does === "drop" ? found.from : found.to
      this.#losing = true
    }
    return undefined
  }

  #cut(): void {
    this.proxy.cuts += 1
    this.ways.toClient.discard()
    this.ways.toServer.finish()
    this.client.resetAndDestroy()
  }
}

class Proxy implements FaultProxy {
  readonly weather: Readonly<Record<Direction, Weather>> = { toServer: fair(), toClient: fair() }
  readonly links = new Set<Link>()
  traps: Array<Trap> = []
  cuts = 0
  #refusing = false
  readonly listener = createServer({ allowHalfOpen: true }, (client) => {
    if (this.#refusing) {
      client.on("error", () => client.destroy())
      client.resetAndDestroy()
      return
    }
    const link = new Link(client, this)
    this.links.add(link)
    const forget = () => {
      if (client.destroyed && link.server.destroyed) this.links.delete(link)
    }
    client.on("close", forget)
    link.server.on("close", forget)
  })

  target: Target

  constructor(target: Target) {
    this.target = target
  }

  get port(): number {
    const address: AddressInfo | string | null = this.listener.address()
    return typeof address === "object" && address !== null ? address.port : 0
  }
  readonly refuse = Effect.sync(() => {
    this.#refusing = true
  })
  readonly reset = Effect.sync(() => {
    for (const link of this.links) link.reset()
  })
  readonly heal = Effect.sync(() => {
    this.#refusing = false
    this.traps = []
    for (const direction of directions) Object.assign(this.weather[direction], fair())
    for (const link of this.links) {
      if (directions.some((direction) => link.ways[direction].torn)) link.reset()
      for (const direction of directions) link.ways[direction].wake()
    }
  })
  moveTo(target: Target) {
    return Effect.sync(() => {
      this.target = target
    })
  }
  latency(latencyMs: number, direction?: Direction) {
    return this.#set({ latencyMs }, direction)
  }
  slice(bytes: number, delayMs = 0, direction?: Direction) {
    return this.#set({ slice: { bytes, delayMs } }, direction)
  }
  blackHole(direction?: Direction) {
    return this.#set({ hole: true }, direction)
  }
  stall(direction?: Direction) {
    return this.#set({ stalled: true }, direction)
  }
  cutAfter(
    pattern: Pattern,
    direction: Direction,
    { drop = false, times = 1 }: { readonly drop?: boolean; readonly times?: number } = {}
  ) {
    return Effect.sync(() => {
      this.traps.push({ pattern, direction, does: drop ? "drop" : "pass", left: times })
    })
  }
  loseReply(pattern: Pattern, times = 1) {
    return Effect.sync(() => {
      this.traps.push({ pattern, direction: "toServer", does: "loseReply", left: times })
    })
  }
  #set(change: Partial<Weather>, direction?: Direction) {
    return Effect.sync(() => {
      for (const way of direction === undefined ? directions : [direction]) {
        Object.assign(this.weather[way], change)
      }
      for (const { ways } of this.links) for (const way of directions) ways[way].wake()
    })
  }
}

/** Listens on a free port of 127.0.0.1 until its scope ends; a target that is down resets the client. */
export const makeFaultProxy = (target: Target): Effect.Effect<FaultProxy, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const proxy = new Proxy(target)
      proxy.listener.listen(0, "127.0.0.1")
      await once(proxy.listener, "listening")
      return proxy
    }),
    (proxy) =>
      Effect.callback<void>((resume) => {
        proxy.listener.close(() => resume(Effect.void))
        for (const { client, server } of proxy.links) {
          client.destroy()
          server.destroy()
        }
      })
  )
