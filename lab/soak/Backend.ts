/**
 * The model server of the soak: quick, honest about counts, with the hostile models of attackers beside its own, and it remembers
 * who came. A prompt begins with `<key>#<number>#`, so that what it saw can be compared with what was audited.
 */
import { createServer } from "node:http"
import { Effect, type Scope } from "effect"
import { askedOf, hostile } from "../attacks/hostile.ts"
import { listening } from "../../test/support/listening.ts"

export interface Backend {
  readonly url: string
  /** numbers of the requests it got; requests of attackers have none */
  readonly seen: Set<number>
  /** the most requests of a key it ever had at the same time */
  readonly most: Map<string, number>
  /** forgets who is there: their clients may be gone without its knowing */
  readonly forget: () => void
}

const entry = (name: string) => ({
  name: `${name}:latest`,
  model: `${name}:latest`,
  modified_at: "2026-01-01T00:00:00Z",
  size: 1,
  digest: name,
  capabilities: ["completion"],
  details: { family: "llama", format: "gguf", parameter_size: "1B", quantization_level: "Q4_0" }
})

const line = (model: string, generate: boolean, text: string, more: object = {}) => {
  const words = generate ? { response: text } : { message: { role: "assistant", content: text } }
  return `${JSON.stringify({ model, created_at: "2026-01-01T00:00:00Z", ...words, done: false, ...more })}\n`
}

/** Frames of a `short` answer, and of a `slow` one with its pace. */
const shape = { short: { frames: 3, gapMs: 0 }, slow: { frames: 60, gapMs: 20 } } as const

const number = (text: string, name: string): number | undefined => {
  const found = new RegExp(`"${name}":(-?\\d+)`).exec(text)?.[1]
  return found === undefined ? undefined : Number(found)
}

export const makeBackend: Effect.Effect<Backend, never, Scope.Scope> = Effect.gen(function* () {
  const tags = ["short", "slow", ...Object.keys(hostile)].map(entry)
  const seen = new Set<number>()
  const most = new Map<string, number>()
  const now = new Map<string, number>()
  let age = 0
  const change = (key: string, by: number, of = age) => {
    if (of !== age) return
    const count = (now.get(key) ?? 0) + by
    now.set(key, count)
    most.set(key, Math.max(most.get(key) ?? 0, count))
  }
  const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
    let body = ""
    request.setEncoding("utf8").on("data", (text: string) => (body += text))
    request.on("end", () => {
      if (request.method === "GET") {
        response.setHeader("content-type", "application/json")
        response.end(JSON.stringify(request.url === "/api/tags" ? { models: tags } : { version: "0.13.0" }))
        return
      }
      // Discovery asks what a model can do; no request of a client does in these runs.
      if (request.url === "/api/show") {
        response.setHeader("content-type", "application/json")
        response.end(JSON.stringify({ capabilities: ["completion"], model_info: {} }))
        return
      }
      const asked = askedOf(request.url ?? "", body, () => undefined)
      const attacked = hostile[asked.model]
      if (attacked !== undefined) return attacked(asked, response)
      const [, text = "", key = "?", serial] =
        /"(?:content|prompt|input)":\[?"(([^#"]*)#(\d+)#[^"]*)"/.exec(body) ?? []
      if (serial !== undefined) seen.add(Number(serial))
      // One token for four bytes, and five for a template: a little below the gateway's estimate.
      const prompt = 5 + Math.ceil(text.length / 4)
      if (request.url === "/api/embed") {
        response.setHeader("content-type", "application/json")
        response.end(JSON.stringify({ model: "short", embeddings: [[0.5, 0.25]], prompt_eval_count: prompt }))
        return
      }
      const generate = request.url === "/api/generate"
      const came = age
      change(key, 1)
      const model = body.includes('"slow') ? "slow" : "short"
      const { frames, gapMs } = shape[model]
      const count = Math.min(frames, number(body, "num_predict") ?? frames)
      let over = false
      const end = () => {
        if (over) return
        over = true
        change(key, -1, came)
      }
      const last = () => {
        end()
        const done_reason = count < frames ? "length" : "stop"
        const counts = { prompt_eval_count: prompt, eval_count: count }
        response.end(line(model, generate, "", { done: true, done_reason, ...counts }))
      }
      response.on("close", end)
      response.setHeader("content-type", "application/x-ndjson")
      const word = line(model, generate, " word")
      if (gapMs === 0) {
        response.write(word.repeat(count))
        return last()
      }
      let sent = 0
      const timer = setInterval(() => {
        if (response.destroyed) return clearInterval(timer)
        sent += 1
        if (sent <= count) return void response.write(word)
        clearInterval(timer)
        return last()
      }, gapMs)
    })
  })
  const url = yield* listening(server)
  const forget = () => {
    age += 1
    now.clear()
  }
  return { url, seen, most, forget }
})
