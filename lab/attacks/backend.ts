/**
 * The model server of the attacks, in a process of its own: honest models (`short`, `slow`) and hostile ones
 * (`hostile.ts`). `GET /stats` says how many calls each model got and how many tokens it made.
 */
import { createServer } from "node:http"
import { askedOf, hostile, tokensOf } from "./hostile.ts"

const models = ["short", ...Object.keys(hostile)]
const tags = models.map((name) => ({
  name: `${name}:latest`,
  model: `${name}:latest`,
  modified_at: "2026-01-01T00:00:00Z",
  size: 1,
  digest: name,
  capabilities: ["completion", "tools", "thinking", "insert", "vision", "embedding"],
  details: { family: "llama", format: "gguf", parameter_size: "1B", quantization_level: "Q4_0" }
}))

interface Stats {
  calls: number
  tokens: number
  /** prompt tokens, as this server counts them */
  prompt: number
}
const stats = new Map<string, Stats>()
const statsOf = (model: string): Stats => {
  const known = stats.get(model)
  if (known !== undefined) return known
  const fresh = { calls: 0, tokens: 0, prompt: 0 }
  stats.set(model, fresh)
  return fresh
}

const short = (model: string, generate: boolean, prompt: number): string => {
  const frame = (text: string, more: object = {}) =>
    `${JSON.stringify({
      model,
      created_at: "2026-01-01T00:00:00Z",
      ...(generate ? { response: text } : { message: { role: "assistant", content: text } }),
      done: false,
      ...more
    })}\n`
  return (
    frame(" word").repeat(3) +
    frame("", { done: true, done_reason: "stop", prompt_eval_count: prompt, eval_count: 3 })
  )
}

const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const pieces: Array<Buffer> = []
  request.on("data", (piece: Buffer) => pieces.push(piece))
  request.on("error", () => response.destroy())
  request.on("end", () => {
    const json = (value: object) => {
      response.setHeader("content-type", "application/json")
      response.end(JSON.stringify(value))
    }
    const path = request.url ?? ""
    if (path === "/stats") return json(Object.fromEntries(stats))
    if (path === "/api/tags") return json({ models: tags })
    if (request.method === "GET") return json({ version: "0.24.0" })
    const asked = askedOf(path, Buffer.concat(pieces).toString(), (tokens) => {
      statsOf(asked.model).tokens += tokens
    })
    const { model, textBytes } = asked
    const mine = statsOf(path === "/api/show" ? `${model}, shown` : model)
    mine.calls += 1
    mine.prompt += tokensOf(textBytes)
    const answer = hostile[model]
    // What a model can do is asked in the background: only a model that is hostile there answers as it pleases.
    if (path === "/api/show" && !model.startsWith("shows-")) {
      return json({ capabilities: tags[0]?.capabilities, details: tags[0]?.details, model_info: {} })
    }
    if (answer !== undefined) return answer(asked, response)
    if (path.startsWith("/api/embed"))
      return json({ model, embeddings: [[0.5, 0.25]], embedding: [0.5, 0.25], prompt_eval_count: 3 })
    mine.tokens += 3
    response.setHeader("content-type", "application/x-ndjson")
    response.end(short(model, path === "/api/generate", tokensOf(textBytes)))
  })
})
server.listen(Number(process.env["PORT"]), "127.0.0.1")
