/**
 * The backend of the benchmark. It speaks the part of Ollama's and OpenAI's wire that the works need, on plain sockets:
 * node:http would take more of the core that it shares with the stores and the load.
 * The name of the model sets the speed. `short`: three frames and the end in one write; `burst`: 200 frames, one write a
 * tick; `paced`: 100 frames, one every 20 ms; `step20`, `step55`: 100 frames, one every 20 or 55 ms, for all streams at the same
 * moment, as a GPU that makes the answers together; `frames-n`: n frames, one write a tick.
 * Embeddings are always the same 64 vectors of 384 numbers, on both surfaces; an object of `/v1` always the same three words.
 */
import { createServer, type Socket } from "node:net"

const model = (name: string) => ({
  name,
  model: name,
  modified_at: "2026-01-01T00:00:00Z",
  size: 1,
  digest: "0",
  details: {}
})
const names = [
  "short",
  "burst",
  "paced",
  "step20",
  "step55",
  "frames-10",
  "frames-100",
  "frames-1000",
  "frames-10000"
]

/** One frame of a model with this text, and the end of a stream after `count` frames. */
interface Dialect {
  readonly type: string
  readonly frame: (name: string, content: string) => string
  readonly end: (name: string, count: number) => string
}

const native: Dialect = {
  type: "application/x-ndjson",
  frame: (name, content) =>
    `${JSON.stringify({ model: name, created_at: "2026-01-01T00:00:00Z", message: { role: "assistant", content }, done: false })}\n`,
  end: (name, count) =>
    `${JSON.stringify({ model: name, created_at: "2026-01-01T00:00:00Z", message: { role: "assistant", content: "" }, done: true, done_reason: "stop", total_duration: 1, load_duration: 1, prompt_eval_count: 7, prompt_eval_duration: 1, eval_count: count, eval_duration: 1 })}\n`
}

const event = (name: string, choices: ReadonlyArray<unknown>, usage?: unknown) =>
  `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1_700_000_000, model: name, choices, usage })}\n\n`
/** What Bifrost reads, which does not speak the native wire. */
const openai: Dialect = {
  type: "text/event-stream",
  frame: (name, content) =>
    event(name, [{ index: 0, delta: { role: "assistant", content }, finish_reason: null }]),
  end: (name, count) =>
    event(name, [{ index: 0, delta: {}, finish_reason: "stop" }]) +
    event(name, [], { prompt_tokens: 7, completion_tokens: count, total_tokens: 7 + count }) +
    "data: [DONE]\n\n"
}

const whole = (type: string, body: string) =>
  Buffer.from(
    `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
  )
const head = (type: string) =>
  `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\n\r\n`
const chunk = (text: string) => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
const last = "0\r\n\r\n"

const object = (value: unknown) => whole("application/json", JSON.stringify(value))
// With the digits of a float32, as a model server writes them.
const vector = Array.from({ length: 384 }, (_, n) => Number((Math.sin(n) / 16).toPrecision(9)))
const vectors = object({
  model: "short",
  embeddings: Array.from({ length: 64 }, () => vector),
  prompt_eval_count: 192
})
const answer = object({
  ...JSON.parse(native.end("short", 3)),
  message: { role: "assistant", content: " word word word" }
})
const completion = object({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_700_000_000,
  model: "short",
  choices: [{ index: 0, message: { role: "assistant", content: " word word word" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 }
})
const tags = object({ models: names.map(model) })
const models = object({
  object: "list",
  data: names.map((id) => ({ id, object: "model", created: 1_700_000_000, owned_by: "bench" }))
})
/** A price for each model, so that Bifrost, whose budgets are in dollars, has something to count. */
const prices = object(
  Object.fromEntries(
    names.map((name) => [
      name,
      {
        provider: "openai",
        mode: "chat",
        base_model: name,
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6
      }
    ])
  )
)
const version = object({ version: "1.0.0" })

const words = (dialect: Dialect) =>
  Buffer.from(
    head(dialect.type) + chunk(dialect.frame("short", " word").repeat(3) + dialect.end("short", 3)) + last
  )
const short = { native: words(native), openai: words(openai) }

/** Calls `tick` every `gapMs`, and returns what ends that. */
type Pace = (tick: () => void, gapMs: number) => () => void
const alone: Pace = (tick, gapMs) => {
  const timer = setInterval(tick, gapMs)
  return () => clearInterval(timer)
}
const steps = new Map<number, Set<() => void>>()
const together: Pace = (tick, gapMs) => {
  const ticks = steps.get(gapMs) ?? new Set()
  if (!steps.has(gapMs)) setInterval(() => ticks.forEach((each) => each()), gapMs)
  steps.set(gapMs, ticks.add(tick))
  return () => ticks.delete(tick)
}

const paced = (socket: Socket, dialect: Dialect, gapMs: number, count: number, pace = alone): void => {
  let sent = 0
  socket.write(head(dialect.type))
  const end = pace(() => {
    sent += 1
    // The stamp lets the client tell how long a frame was under way.
    if (sent <= count) socket.write(chunk(dialect.frame("paced", `@${process.hrtime.bigint()}@`)))
    else {
      stop()
      socket.off("close", stop)
      socket.write(chunk(dialect.end("paced", count)) + last)
    }
  }, gapMs)
  const stop = () => void end()
  socket.on("close", stop)
}

const burst = (socket: Socket, dialect: Dialect, count: number): void => {
  const piece = chunk(dialect.frame("burst", " word of twenty bytes"))
  socket.write(head(dialect.type))
  const next = (left: number): void => {
    if (socket.destroyed) return
    if (left === 0) return void socket.write(chunk(dialect.end("burst", count)) + last)
    socket.write(piece)
    setImmediate(next, left - 1)
  }
  next(count)
}

const respond = (socket: Socket, line: string, body: string): void => {
  const path = line.split(" ", 2)[1] ?? ""
  if (line.startsWith("GET")) {
    if (path === "/api/tags") return void socket.write(tags)
    if (path === "/prices") return void socket.write(prices)
    return void socket.write(path.endsWith("/models") ? models : version)
  }
  if (path === "/api/embed" || path === "/v1/embeddings") return void socket.write(vectors)
  const foreign = path.startsWith("/v1/")
  const streams = foreign ? /"stream": ?true/.test(body) : !/"stream": ?false/.test(body)
  if (!streams) return void socket.write(foreign ? completion : answer)
  const dialect = foreign ? openai : native
  const counted = /"frames-(\d+)"/.exec(body)?.[1]
  if (counted !== undefined) burst(socket, dialect, Number(counted))
  else if (body.includes('"burst"')) burst(socket, dialect, 200)
  else if (body.includes('"paced"')) paced(socket, dialect, 20, 100)
  else if (body.includes('"step20"')) paced(socket, dialect, 20, 100, together)
  else if (body.includes('"step55"')) paced(socket, dialect, 55, 100, together)
  else socket.write(foreign ? short.openai : short.native)
}

/** Where the body of a request ends in what was read so far, or `undefined` when there is more to come. */
const bodyEnd = (headers: string, bytes: Buffer, from: number): number | undefined => {
  if (/\r\ntransfer-encoding: *chunked/i.test(headers)) {
    const at = bytes.indexOf("\r\n0\r\n\r\n", from - 2)
    return at < 0 ? undefined : at + 7
  }
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(headers)?.[1] ?? 0)
  return bytes.length < from + length ? undefined : from + length
}

const server = createServer({ noDelay: true }, (socket) => {
  let read: Buffer = Buffer.alloc(0)
  socket.on("error", () => socket.destroy())
  socket.on("data", (bytes: Buffer) => {
    read = read.length === 0 ? bytes : Buffer.concat([read, bytes])
    for (;;) {
      const blank = read.indexOf("\r\n\r\n")
      if (blank < 0) return
      const headers = read.toString("latin1", 0, blank)
      const end = bodyEnd(headers, read, blank + 4)
      if (end === undefined) return
      const body = read.toString("latin1", blank + 4, end)
      read = read.subarray(end)
      respond(socket, headers, body)
    }
  })
})
server.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => process.stdout.write("up\n"))
