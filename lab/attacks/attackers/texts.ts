/** Point 18: texts that are hard to read. */
import { Pool } from "undici"
import { type Attacker, type Order, pick, together, untilOf } from "./sockets.ts"

const headerBytes = 15_500
const nameBytes = 240_000

const filled = (unit: string, bytes: number): string => unit.repeat(bytes / unit.length)

const hello = (model: string): string =>
  JSON.stringify({ model, stream: false, messages: [{ role: "user", content: "Hello" }] })

interface Asked {
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

/** `letters` takes the place of what is hard to read. */
const requests: Readonly<Record<string, (order: Order, letters: boolean) => Asked>> = {
  "blanks in Content-Type": ({ model }, letters) => ({
    path: "/api/chat",
    headers: { "content-type": `application/json${filled(letters ? "a" : " ", headerBytes)}x` },
    body: hello(model)
  }),
  "percents in X-Request-ID": (_, letters) => ({
    path: "/healthz",
    headers: { "x-request-id": filled(letters ? "a" : "%25", headerBytes) }
  }),
  "percents in a model's name": (_, letters) => ({
    path: "/api/chat",
    headers: { "content-type": "application/json" },
    body: hello(filled(letters ? "aaa" : "%25", nameBytes))
  })
}

export const hardTexts = Object.keys(requests)

/** `count` connections send it as fast as they are answered; `stream` false sends letters instead. */
const readTexts: Attacker = async (order) => {
  const over = untilOf(order)
  const pool = new Pool(order.url, { connections: order.count, headersTimeout: 60_000 })
  const asked = requests[order.body]?.(order, !order.stream)
  if (asked === undefined) throw new Error(`no such text: ${order.body}`)
  const { body, headers, path } = asked
  const counts: Record<string, number> = {}
  await together(order.count, async (i) => {
    while (!over()) {
      const { body: answer, statusCode } = await pool.request({
        method: body === undefined ? "GET" : "POST",
        path,
        headers: { ...headers, authorization: `Bearer ${pick(order.keys, i)}` },
        ...(body === undefined ? {} : { body })
      })
      await answer.dump()
      counts[statusCode] = (counts[statusCode] ?? 0) + 1
    }
  })
  return counts
}

export const texts: Readonly<Record<string, Attacker>> = { texts: readTexts }
