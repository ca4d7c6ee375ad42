/** What the attackers are made of: sockets that they hold, and the bytes of requests. */
import { connect, type Socket } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { Schema } from "effect"

/** What one attacker is told, as JSON in its environment. */
export const Order = Schema.Struct({
  attack: Schema.String,
  url: Schema.String,
  seconds: Schema.Finite,
  /** the keys' secrets */
  keys: Schema.Array(Schema.String),
  model: Schema.String,
  path: Schema.String,
  /** how many connections, requests or tries a second: see the attack */
  count: Schema.Finite,
  rate: Schema.Finite,
  /** a JSON body of its own, or a word that the attack knows */
  body: Schema.String,
  stream: Schema.Boolean,
  /** addresses of loopback to come from */
  from: Schema.Array(Schema.String)
})
export type Order = typeof Order.Type

/** Attacks for `seconds`, then says what it met. */
export type Attacker = (order: Order) => Promise<Readonly<Record<string, number>>>

export const untilOf = ({ seconds }: Order): (() => boolean) => {
  const end = performance.now() + seconds * 1000
  return () => performance.now() >= end
}

/** One of them in turn. */
export const pick = (items: ReadonlyArray<string>, i: number): string => items[i % items.length] ?? ""

/** A connection that nobody minds losing. */
export const dial = ({ from, url }: Order, i = 0): Promise<Socket> =>
  new Promise((resolve) => {
    const { hostname, port } = new URL(url)
    const localAddress = from.length === 0 ? {} : { localAddress: pick(from, i) }
    const socket = connect({ host: hostname, port: Number(port), ...localAddress })
    socket.setNoDelay(true)
    socket.on("error", () => socket.destroy())
    socket.once("connect", () => resolve(socket))
    socket.once("close", () => resolve(socket))
  })

/** Waits until what is written has left this process, or the connection is gone. */
export const write = (socket: Socket, bytes: string | Buffer): Promise<void> =>
  new Promise((resolve) => {
    if (socket.destroyed) return resolve()
    const done = () => {
      socket.off("drain", done).off("close", done)
      resolve()
    }
    if (socket.write(bytes)) return resolve()
    socket.on("drain", done).on("close", done)
  })

export const head = (
  order: Pick<Order, "path">,
  secret: string,
  lines: ReadonlyArray<string>,
  version = "1.1",
  method = "POST"
): string =>
  [
    `${method} ${order.path} HTTP/${version}`,
    "Host: gateway",
    ...(secret === "" ? [] : [`Authorization: Bearer ${secret}`]),
    "Content-Type: application/json",
    ...lines,
    "",
    ""
  ].join("\r\n")

export const post = (order: Pick<Order, "path">, secret: string, body: string, version = "1.1"): string =>
  head(order, secret, [`Content-Length: ${Buffer.byteLength(body)}`], version) + body

/** Runs `task` for each of `count` at the same time. */
export const together = async (count: number, task: (i: number) => Promise<void>): Promise<void> => {
  await Promise.all(Array.from({ length: count }, (_, i) => task(i)))
}

/** `count` connections: each does `attack`, and is then dialled again, until it is over. */
export const again = (
  order: Order,
  attack: (socket: Socket, i: number, over: () => boolean) => Promise<void>
): Promise<void> => {
  const over = untilOf(order)
  return together(order.count, async (i) => {
    while (!over()) {
      const socket = await dial(order, i)
      await attack(socket, i, over)
      socket.destroy()
    }
  })
}

/** Starts `task` `rate` times a second until it is over, however long each takes. Returns how many were started. */
export const openLoop = async (order: Order, task: (i: number) => void): Promise<number> => {
  const over = untilOf(order)
  const began = performance.now()
  let i = 0
  while (!over()) {
    const due = ((performance.now() - began) * order.rate) / 1000
    for (; i < due; i += 1) task(i)
    await sleep(2)
  }
  return i
}

export { sleep }
