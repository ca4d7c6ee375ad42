/** A server that speaks RESP 3. A test says where it answers something else, or cuts the connection. */
import { once } from "node:events"
import { type AddressInfo, createServer, type Socket } from "node:net"
import { Effect, type Scope } from "effect"

/** Bytes to answer with; with `cut` the connection is reset after them. */
export interface Reply {
  readonly bytes: string
  readonly cut?: boolean
}

export interface ScriptedRedis {
  readonly port: number
  /** resets all connections */
  readonly reset: () => void
  /** sends bytes to the connections that have subscribed */
  readonly sendToSubscribers: (bytes: string) => void
}

export const bulk = (text: string): string => `$${Buffer.byteLength(text)}\r\n${text}\r\n`
const pushed = (...items: ReadonlyArray<string>): string => `>${items.length}\r\n${items.join("")}`

/** What a server answers that is well. */
const healthy = ([name = "", first = "", ...rest]: ReadonlyArray<string>): string => {
  switch (`${name} ${first}`.toLowerCase().trim()) {
    case "hello 3":
      return `%1\r\n${bulk("server")}${bulk("redis")}`
    case "info":
      return bulk("role:master\r\nloading:0\r\nrun_id:1\r\n")
    default:
      return name === "subscribe"
        ? [first, ...rest].map((channel, i) => pushed(bulk(name), bulk(channel), `:${i + 1}\r\n`)).join("")
        : "+OK\r\n"
  }
}

/** Reads one command of RESP: its words, and the text after it. */
const readCommand = (
  text: string
): { readonly words: ReadonlyArray<string>; readonly rest: string } | undefined => {
  const parts = text.split("\r\n")
  const count = Number(parts[0]?.slice(1))
  const words = Array.from({ length: count }, (_, i) => parts[2 + 2 * i])
  const rest = parts.slice(1 + 2 * count)
  return rest.length === 0 ? undefined : { words: words.map((word) => word ?? ""), rest: rest.join("\r\n") }
}

/** `script` gets each command and the answer of a healthy server, and may return another one. */
export const makeScriptedRedis = (
  script: (words: ReadonlyArray<string>, healthy: string) => Reply | undefined
): Effect.Effect<ScriptedRedis, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const [sockets, subscribers] = [new Set<Socket>(), new Set<Socket>()]
      const server = createServer((socket) => {
        sockets.add(socket)
        socket.on("close", () => sockets.delete(socket)).on("error", () => socket.destroy())
        let text = ""
        socket.setEncoding("utf8").on("data", (more: string) => {
          text += more
          // A client of another test may still call at this port, which was its server's. A command without a count would have no end.
          if (!/^(\*\d*(\r|$)|$)/.test(text)) return void socket.destroy()
          for (let next = readCommand(text); next !== undefined; next = readCommand(text)) {
            text = next.rest
            if (next.words[0] === "subscribe") subscribers.add(socket)
            const bytes = healthy(next.words)
            const reply = script(next.words, bytes) ?? { bytes }
            if (reply.cut !== true) socket.write(reply.bytes)
            else return void socket.write(reply.bytes, () => socket.resetAndDestroy())
          }
        })
      }).listen(0, "127.0.0.1")
      await once(server, "listening")
      const address: AddressInfo | string | null = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      return {
        port,
        reset: () => {
          for (const socket of sockets) socket.resetAndDestroy()
        },
        sendToSubscribers: (bytes: string) => {
          for (const socket of subscribers) socket.write(bytes)
        },
        close: () => {
          server.close()
          for (const socket of sockets) socket.destroy()
        }
      }
    }),
    ({ close }) => Effect.sync(close)
  )
