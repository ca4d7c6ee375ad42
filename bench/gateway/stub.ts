/**
 * The fast backend of the benchmark: speaks just enough of the native wire, at a speed set by the model's name.
 * `short`: three frames in one write; `burst`: 200 frames, one write a tick; `paced`: 100 frames, one every 20 ms;
 * `long`: 600 frames, one every 50 ms; `frames-n`: n frames, one write a tick. An embedding is always the same 64 vectors of 384 numbers, an OpenAI completion
 * always the same three words.
 */
import { createServer, type ServerResponse } from "node:http"

const model = (name: string) => ({
  name,
  model: name,
  modified_at: "2026-01-01T00:00:00Z",
  size: 1,
  digest: "0",
  details: {}
})
const frame = (name: string, content: string) =>
  `${JSON.stringify({ model: name, created_at: "2026-01-01T00:00:00Z", message: { role: "assistant", content }, done: false })}\n`
const final = (name: string, count: number) =>
  `${JSON.stringify({ model: name, created_at: "2026-01-01T00:00:00Z", message: { role: "assistant", content: "" }, done: true, done_reason: "stop", total_duration: 1, load_duration: 1, prompt_eval_count: 7, prompt_eval_duration: 1, eval_count: count, eval_duration: 1 })}\n`

const vector = Array.from({ length: 384 }, (_, n) => Math.sin(n) / 16)
const vectors = Buffer.from(
  JSON.stringify({
    model: "short",
    embeddings: Array.from({ length: 64 }, () => vector),
    prompt_eval_count: 192
  })
)
const completion = Buffer.from(
  JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 1_700_000_000,
    model: "short",
    choices: [
      { index: 0, message: { role: "assistant", content: " word word word" }, finish_reason: "stop" }
    ],
    usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 }
  })
)

const words = Buffer.from(frame("short", " word").repeat(3) + final("short", 3))
const piece = Buffer.from(frame("burst", " word of twenty bytes"))

const paced = (response: ServerResponse, gapMs: number, count: number): void => {
  let sent = 0
  const timer = setInterval(() => {
    sent += 1
    // The stamp lets the client tell how long a frame was under way.
    if (sent <= count) response.write(frame("paced", `@${process.hrtime.bigint()}@`))
    else {
      clearInterval(timer)
      response.end(final("paced", count))
    }
  }, gapMs)
  response.on("close", () => clearInterval(timer))
}

const burst = (response: ServerResponse, count: number, left = count): void => {
  if (left === 0) return void response.end(final("burst", count))
  response.write(piece)
  setImmediate(burst, response, count, left - 1)
}

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  if (request.method === "GET") {
    request.resume()
    response.setHeader("content-type", "application/json")
    const names = [
      "short",
      "burst",
      "paced",
      "long",
      "frames-10",
      "frames-100",
      "frames-1000",
      "frames-10000"
    ]
    response.end(
      JSON.stringify(request.url === "/api/tags" ? { models: names.map(model) } : { version: "1.0.0" })
    )
    return
  }
  let body = ""
  request.setEncoding("utf8")
  request.on("data", (chunk: string) => (body += chunk))
  request.on("end", () => {
    const path = request.url ?? ""
    // What the peers ask for, who do not speak the native protocol.
    if (path.startsWith("/v1/")) {
      response.setHeader("content-type", "application/json")
      return void response.end(completion)
    }
    if (path === "/api/embed") {
      response.setHeader("content-type", "application/json")
      return void response.end(vectors)
    }
    response.setHeader("content-type", "application/x-ndjson")
    const counted = /"frames-(\d+)"/.exec(body)?.[1]
    if (counted !== undefined) burst(response, Number(counted))
    else if (body.includes('"burst"')) burst(response, 200)
    else if (body.includes('"paced"')) paced(response, 20, 100)
    else if (body.includes('"long"')) paced(response, 50, 600)
    else response.end(words)
  })
})
server.listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => process.stdout.write("up\n"))
