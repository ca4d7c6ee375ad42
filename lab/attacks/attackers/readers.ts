/** Points 2 and 3: answers that nobody reads, and answers that are read as fast as they come. */
import type { Socket } from "node:net"
import { again, type Attacker, dial, head, type Order, pick, post, sleep, untilOf, write } from "./sockets.ts"

const inputsOf = (bytes: number): string =>
  Array.from({ length: Math.floor(bytes / 7) }, (_, i) => `"${1000 + (i % 9000)}"`).join(",")

export const bodyOf = (order: Order): string => {
  const { model, path, stream } = order
  if (order.body.startsWith("{")) return order.body
  if (order.body === "too large") return `{"model":"${"a".repeat(270_000)}"}`
  if (path === "/api/embeddings") return `{"model":"${model}","prompt":"word"}`
  const format = order.body === "base64" ? `,"encoding_format":"base64"` : ""
  if (path.includes("embed")) return `{"model":"${model}","input":[${inputsOf(8000)}]${format}}`
  if (path === "/api/show") return `{"model":"${model}"}`
  const words = path.includes("chat") ? `"messages":[{"role":"user","content":"go"}]` : `"prompt":"go"`
  const asksForThem =
    model.includes("logprobs") && path !== "/v1/completions" ? `,"logprobs":true,"top_logprobs":20` : ""
  return `{"model":"${model}","stream":${String(stream)},${words}${asksForThem}}`
}

/** `count` requests, `rate` a second, of which nobody reads a byte. */
const unread =
  (version: string): Attacker =>
  async (order) => {
    const over = untilOf(order)
    const body = bodyOf(order)
    const sockets: Array<Socket> = []
    for (let i = 0; i < order.count && !over(); i += 1) {
      const socket = await dial(order, i)
      socket.pause()
      await write(socket, post(order, pick(order.keys, i), body, version))
      sockets.push(socket)
      await sleep(1000 / order.rate)
    }
    while (!over()) await sleep(50)
    const left = sockets.filter((socket) => !socket.destroyed).length
    for (const socket of sockets) socket.destroy()
    return { requests: sockets.length, "still connected": left }
  }

/** Whoever is refused or cut comes again; an answer is not read beyond its first bytes. */
const unreadAgain: Attacker = async (order) => {
  const body = bodyOf(order)
  let [requests, begun] = [0, 0]
  await again(order, async (socket, i, over) => {
    socket.pause()
    await write(socket, post(order, pick(order.keys, i), body))
    requests += 1
    // The first look makes the socket read at all, as much as its buffer holds.
    let first: unknown = null
    for (let look = 0; look < 100 && first === null && !over() && !socket.destroyed; look += 1) {
      first = socket.read(12)
      await sleep(30)
    }
    if (String(first).endsWith("200")) {
      begun += 1
      while (!over() && !socket.destroyed) await sleep(100)
    }
  })
  return { requests, begun }
}

/** Reads 3 kB a second of each answer, and asks again when it is cut or refused. */
const slowly: Attacker = async (order) => {
  const body = bodyOf(order)
  let asked = 0
  await again(order, async (socket, i, over) => {
    socket.pause()
    await write(socket, post(order, pick(order.keys, i), body))
    asked += 1
    while (!over() && !socket.destroyed) {
      socket.read(300)
      await sleep(100)
    }
    socket.destroy()
    await sleep(100)
  })
  return { asked }
}

/** Many requests on one connection, none of whose answers is read. */
const pipelined: Attacker = async (order) => {
  let sent = 0
  await again(order, async (socket, i, over) => {
    const secret = pick(order.keys, i)
    const request = order.path.includes("tags")
      ? head(order, secret, [], "1.1", "GET")
      : post(order, secret, bodyOf(order))
    socket.pause()
    while (!over() && !socket.destroyed) {
      sent += 1
      // Nothing more is taken once its answers wait: the rest of the time it only stays.
      if (!socket.write(request))
        while (!over() && !socket.destroyed && socket.writableNeedDrain) await sleep(50)
      await sleep(1)
    }
  })
  return { "requests sent": sent }
}

/** Leaves as soon as the answer begins, and comes again. */
const leaving: Attacker = async (order) => {
  const body = bodyOf(order)
  let left = 0
  await again(order, async (socket, i) => {
    const begun = new Promise<void>(
      (resolve) => void socket.once("data", () => resolve()).once("close", resolve)
    )
    await write(socket, post(order, pick(order.keys, i), body))
    await Promise.race([begun, sleep(1000)])
    socket.resetAndDestroy()
    left += 1
  })
  return { left }
}

/** Reads everything at once; whoever is answered asks again. */
const greedy: Attacker = async (order) => {
  const body = bodyOf(order)
  const statuses: Record<string, number> = {}
  let bytes = 0
  await again(order, async (socket, i, over) => {
    let first = ""
    socket.on("data", (chunk) => {
      if (first === "") first = chunk.toString("latin1", 9, 12)
      bytes += chunk.length
    })
    await write(socket, post(order, pick(order.keys, i), body).replace("Host:", "Connection: close\r\nHost:"))
    while (!over() && !socket.destroyed) await sleep(20)
    statuses[first] = (statuses[first] ?? 0) + 1
    socket.destroy()
    await sleep(20)
  })
  return { bytes, ...statuses }
}

export const readers: Readonly<Record<string, Attacker>> = {
  unread: unread("1.1"),
  "unread, HTTP/1.0": unread("1.0"),
  "unread, again and again": unreadAgain,
  "3 kB a second": slowly,
  "pipelined, unread": pipelined,
  leaving,
  greedy
}
