/** Points 4 to 10: holders of a key who ask as fast as they can, or many at a time. */
import { Pool } from "undici"
import { bodyOf } from "./readers.ts"
import {
  again,
  type Attacker,
  dial,
  head,
  type Order,
  pick,
  post,
  sleep,
  together,
  untilOf,
  write
} from "./sockets.ts"

const poolOf = (order: Order): Pool =>
  new Pool(order.url, { connections: order.count, headersTimeout: 30_000, bodyTimeout: 30_000 })

const counter = () => {
  const counts: Record<string, number> = {}
  return { counts, count: (name: string) => void (counts[name] = (counts[name] ?? 0) + 1) }
}

const request = async (
  pool: Pool,
  order: Order,
  i: number,
  body: string,
  signal?: AbortSignal
): Promise<string> => {
  try {
    const get = order.path === "/api/tags" || order.path === "/v1/models" || order.path === "/api/version"
    const { body: answer, statusCode } = await pool.request({
      method: get ? "GET" : "POST",
      path: order.path,
      headers: {
        authorization: `Bearer ${pick(order.keys, i)}`,
        ...(get ? {} : { "content-type": "application/json" })
      },
      ...(get ? {} : { body }),
      ...(signal === undefined ? {} : { signal })
    })
    await answer.dump({ limit: 1e9 })
    return String(statusCode)
  } catch {
    return "lost"
  }
}

/** Each of `count` connections does `work` again and again; the statuses that came. */
const repeated = async (
  order: Order,
  count: number,
  work: (ask: (body: string, signal?: AbortSignal) => Promise<void>) => Promise<unknown>
) => {
  const over = untilOf(order)
  const pool = poolOf(order)
  const { count: note, counts } = counter()
  await together(count, async (i) => {
    while (!over()) await work(async (body, signal) => note(await request(pool, order, i, body, signal)))
  })
  return counts
}

/** The same request from `count` connections, as fast as they are answered. */
const hammer: Attacker = (order) => {
  const body = bodyOf(order)
  return repeated(order, order.count, (ask) => ask(body))
}

/** As `hammer`; each is left after `rate` milliseconds. */
const leaveEarly: Attacker = (order) => {
  const body = bodyOf(order)
  return repeated(order, order.count, async (ask) => {
    await ask(body, AbortSignal.timeout(order.rate))
    await sleep(1)
  })
}

/** Each key, every `rate` milliseconds: one request that is served, and then three for `model` at once, which fail. */
const serveAndFail: Attacker = (order) =>
  repeated(order, order.keys.length, async (ask) => {
    await ask(bodyOf({ ...order, model: "short" }))
    await Promise.all([1, 2, 3].map(() => ask(bodyOf(order))))
    await sleep(order.rate)
  })

/** `count` requests at once, each read to its end; and how many frames with words came. */
const volley: Attacker = async (order) => {
  const body = bodyOf(order)
  const { count, counts } = counter()
  let words = 0
  await together(order.count, async (i) => {
    const socket = await dial(order, i)
    let [first, whole] = ["", ""]
    socket.setEncoding("latin1").on("data", (text: string) => {
      if (first === "") first = text.slice(9, 12)
      whole += text
    })
    await write(socket, post(order, pick(order.keys, i), body).replace("Host:", "Connection: close\r\nHost:"))
    const over = untilOf(order)
    while (!over() && !socket.destroyed) await sleep(20)
    count(first)
    words += whole.split(" word").length - 1
    socket.destroy()
  })
  return { words, ...counts }
}

/** Bodies that are not JSON until their last byte. */
const malformed: Attacker = async (order) => {
  const filling = order.body === "deep" ? "[".repeat(250_000) : `"${"\\u0041".repeat(41_000)}`
  return hammer({ ...order, body: `{"model":${filling}` })
}

/** Several requests to lists on one connection at a time. */
const pipelinedLists: Attacker = async (order) => {
  let [sent, answered, refused] = [0, 0, 0]
  await again(order, async (socket, i, over) => {
    const one = head(order, pick(order.keys, i), [], "1.1", order.body === "HEAD" ? "HEAD" : "GET")
    socket.setEncoding("latin1").on("data", (text: string) => {
      answered += text.split("HTTP/1.1 200").length - 1
      refused += text.split("HTTP/1.1 429").length - 1
    })
    for (let n = 0; n < 100 && !over() && !socket.destroyed; n += 1) {
      await write(socket, one.repeat(16))
      sent += 16
      await sleep(10)
    }
  })
  return { sent, "200": answered, "429": refused }
}

export const callers: Readonly<Record<string, Attacker>> = {
  hammer,
  "leave early": leaveEarly,
  "serve and fail": serveAndFail,
  volley,
  malformed,
  "pipelined lists": pipelinedLists
}
