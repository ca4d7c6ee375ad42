/** Points 11 to 13: whoever has no key. */
import { randomBytes } from "node:crypto"
import type { Socket } from "node:net"
import { Pool } from "undici"
import {
  again,
  type Attacker,
  dial,
  head,
  openLoop,
  type Order,
  pick,
  post,
  sleep,
  untilOf,
  write
} from "./sockets.ts"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const base62 = (count: number): string =>
  Array.from(randomBytes(count), (byte) => alphabet[byte % 62]).join("")

/** A key of the right form: unknown, or with the prefix that the order names. */
const wrongKey = (prefix: string): string => (prefix === "" ? `tg_${base62(41)}` : prefix + base62(32))

const hello = '{"model":"short","messages":[{"role":"user","content":"Hello"}]}'

const requests: Readonly<Record<string, (order: Order) => string>> = {
  path: () => head({ path: "/api/pull" }, "", ["Content-Length: 0"]),
  unknown: () => post({ path: "/api/chat" }, wrongKey(""), hello),
  malformed: () => "GET / HTTP/9.9\r\nno colon\r\n\r\n",
  pipelined: () => head({ path: "/api/pull" }, "", ["Content-Length: 0"]).repeat(50)
}

/** Connects, sends, and is gone 3 ms later; `stream` false ends the connection in good manner instead. */
const sendAndLeave: Attacker = async (order) => {
  const make = requests[order.body] ?? requests["path"]
  const sent = await openLoop(order, (i) => {
    void dial(order, i).then(async (socket) => {
      socket.resume()
      socket.write(make?.(order) ?? "")
      await sleep(3)
      if (order.stream) socket.resetAndDestroy()
      else socket.end()
    })
  })
  return { sent }
}

/** The same and stays, so that the line of the refused is full. */
const sendAndStay: Attacker = async (order) => {
  const make = requests[order.body] ?? requests["path"]
  let answers = 0
  await again(order, async (socket) => {
    const answered = new Promise<void>(
      (resolve) => void socket.once("data", () => resolve()).once("close", resolve)
    )
    await write(socket, make?.(order) ?? "")
    await Promise.race([answered, sleep(5000)])
    answers += 1
  })
  return { answers }
}

const poolOf = ({ count, from: [localAddress], url }: Order): Pool =>
  new Pool(url, {
    connections: count,
    headersTimeout: 20_000,
    ...(localAddress === undefined ? {} : { localAddress })
  })

/** Wrong secrets: `rate` a second, behind the prefixes of `keys`, or behind no known prefix. */
const guess: Attacker = async (order) => {
  const pool = poolOf(order)
  const counts: Record<string, number> = {}
  const count = (name: string) => void (counts[name] = (counts[name] ?? 0) + 1)
  let open = 0
  const sent = await openLoop(order, (i) => {
    if (open > 4000) return count("not sent")
    open += 1
    const prefix = order.keys.length === 0 ? "" : pick(order.keys, i)
    const headers = { "content-type": "application/json", authorization: `Bearer ${wrongKey(prefix)}` }
    pool
      .request({ method: "POST", path: "/api/chat", headers, body: hello })
      .then(async ({ body, statusCode }) => {
        await body.dump()
        count(String(statusCode))
      })
      .catch(() => count("lost"))
      .finally(() => void (open -= 1))
  })
  return { sent, ...counts }
}

/**
 * Wrong secrets behind one prefix, each of them asked with again and again until it has been verified: to a queue that
 * prefers whoever was turned away, they look like owners.
 */
const insist: Attacker = async (order) => {
  const pool = poolOf(order)
  const secrets = Array.from({ length: 1500 }, () => wrongKey(pick(order.keys, 0)))
  let [answered, refused, open] = [0, 0, 0]
  const sent = await openLoop(order, (i) => {
    if (open > 4000) return
    open += 1
    const secret = pick(secrets, i)
    const headers = { "content-type": "application/json", authorization: `Bearer ${secret}` }
    pool
      .request({ method: "POST", path: "/api/chat", headers, body: hello })
      .then(async ({ body, statusCode }) => {
        await body.dump()
        if (statusCode !== 401) return void (refused += 1)
        answered += 1
        secrets[i % secrets.length] = wrongKey(pick(order.keys, 0))
      })
      .catch(() => void (refused += 1))
      .finally(() => void (open -= 1))
  })
  return { sent, verified: answered, refused }
}

/** Connections that say nothing, or a byte now and then; whoever is cut comes again. */
const occupy: Attacker = async (order) => {
  const over = untilOf(order)
  const sockets = new Set<Socket>()
  const drip = order.body === "drip" ? "GET /api/tags HTTP/1.1\r\nHost: x\r\nX-A: " : ""
  const idle = order.body === "idle" ? head({ path: "/api/version" }, "", [], "1.1", "GET") : ""
  const said = drip + idle
  let [dialled, most] = [0, 0]
  const enter = async (): Promise<void> => {
    dialled += 1
    const socket = await dial(order, dialled)
    if (socket.destroyed) return
    sockets.add(socket)
    socket.on("close", () => sockets.delete(socket)).resume()
    if (said !== "") socket.write(said)
  }
  while (!over()) {
    const missing = order.count - sockets.size
    await Promise.all(Array.from({ length: Math.min(400, missing) }, enter))
    most = Math.max(most, sockets.size)
    if (order.body === "drip" && missing <= 0) for (const socket of sockets) socket.write("a")
    await sleep(missing > 0 ? 5 : 500)
  }
  const held = sockets.size
  for (const socket of sockets) socket.destroy()
  return { dialled, "most at a time": most, "held at the end": held }
}

export const strangers: Readonly<Record<string, Attacker>> = {
  "send and leave": sendAndLeave,
  "send and stay": sendAndStay,
  guess,
  insist,
  occupy
}
