/**
 * The clients of a crowd, in a process of their own: idle keep-alive connections first, then streams. Told what to do,
 * and tells what it saw, by messages.
 */
import { connect, type Socket } from "node:net"
import { Pool } from "undici"

const env = (name: string): string => process.env[name] ?? ""
const target = new URL(env("URL"))
const idle: Array<Socket> = []
const problems = new Map<string, number>()
const problem = (name: string) => problems.set(name, (problems.get(name) ?? 0) + 1)
let ending = false

const idleConnection = (i: number) =>
  new Promise<void>((resolve) => {
    // A source address has some 28,000 ports.
    const localAddress = `127.0.0.${2 + (i % 8)}`
    const socket = connect({ host: target.hostname, port: Number(target.port), localAddress })
    idle.push(socket)
    socket.once("data", () => resolve())
    socket.on("error", (error: NodeJS.ErrnoException) => problem(`idle: ${error.code}`))
    socket.on("close", () => {
      if (!ending) problem("idle: closed by the server")
      resolve()
    })
    const request = () => void socket.write("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    request()
    // Idle for longer than the server keeps a connection, it would be closed by right.
    const again = setInterval(request, 40_000)
    socket.once("close", () => clearInterval(again))
  })

const openIdle = async (count: number) => {
  for (let at = 0; at < count; at += 200)
    await Promise.all(Array.from({ length: Math.min(200, count - at) }, (_, i) => idleConnection(at + i)))
}

const stamp = /@(\d+)@/g
const delays: Array<number> = []
let frames = 0
let whole = 0

/** Resolves `begun` with its first byte, and itself with its last. */
const stream = (pool: Pool, begun: () => void) =>
  new Promise<void>((resolve) => {
    let tail = ""
    pool.dispatch(
      {
        method: "POST",
        path: "/api/chat",
        headers: { "content-type": "application/json", authorization: `Bearer ${env("KEY")}` },
        body: JSON.stringify({ model: "long", messages: [{ role: "user", content: "Hello" }] })
      },
      {
        // Without it undici takes the handler for one of its older kind.
        onRequestStart: () => undefined,
        onResponseStart: (_controller, status) => {
          if (status !== 200) problem(`stream: ${status}`)
        },
        onResponseData: (_controller, chunk) => {
          begun()
          const text = chunk.toString("latin1")
          const now = process.hrtime.bigint()
          for (const match of text.matchAll(stamp)) {
            frames += 1
            // One in seven is enough to know how late they are.
            if (frames % 7 === 0) delays.push(Number(now - BigInt(match[1] ?? 0)) / 1e6)
          }
          tail = text.slice(-400)
        },
        onResponseEnd: () => {
          if (tail.includes('"done":true')) whole += 1
          else problem("stream: ended without its end")
          begun()
          resolve()
        },
        onResponseError: (_controller, error) => {
          problem(`stream: ${"code" in error ? String(error.code) : error.name}`)
          begun()
          resolve()
        }
      }
    )
  })

const at = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0

const tell = (said: object) => process.send?.(said)

process.on(
  "message",
  (told: { readonly idle?: number; readonly streams?: number; readonly close?: true }) => {
    const act = async () => {
      if (told.idle !== undefined) {
        await openIdle(told.idle)
        tell({ did: "idle" })
      }
      if (told.streams !== undefined) {
        const pool = new Pool(target.origin, { connections: told.streams })
        const begun: Array<Promise<void>> = []
        const ended: Array<Promise<void>> = []
        for (let i = 0; i < told.streams; i += 1) {
          begun.push(new Promise((resolve) => ended.push(stream(pool, resolve))))
          if (i % 50 === 49) await new Promise((turn) => setTimeout(turn, 50))
        }
        await Promise.all(begun)
        tell({ did: "begun" })
        await Promise.all(ended)
        await pool.close()
        delays.sort((a, b) => a - b)
        const [p50, p99] = [at(delays, 0.5), at(delays, 0.99)]
        tell({ did: "streamed", frames, whole, p50, p99, problems: Object.fromEntries(problems) })
        problems.clear()
        frames = 0
        whole = 0
        delays.length = 0
      }
      if (told.close === true) {
        ending = true
        for (const socket of idle) socket.destroy()
        tell({ did: "closed", problems: Object.fromEntries(problems) })
      }
    }
    act().catch((error: unknown) => {
      process.stderr.write(`${String(error)}\n`)
      process.exit(1)
    })
  }
)
