/**
 * A model server with a few slots and a queue of its own, first come, first served. An answer takes a slot for a fixed
 * time. A request whose client is gone leaves at once, as it leaves a real one. It holds one model: a request for another one waits
 * until the slots are empty, with all that came after it, and then for the load.
 */
import { createServer, type ServerResponse } from "node:http"
import { Effect, type Scope } from "effect"
import { listening } from "../../../test/support/listening.ts"

export interface SlotServer {
  readonly url: string
  /** how long an answer takes from now on, milliseconds */
  readonly setServiceMs: (ms: number) => void
  /** how long the load of a model takes from now on, milliseconds; 0 at first */
  readonly setLoadMs: (ms: number) => void
  /** loads since `reset` */
  readonly loads: () => number
  /** requests that are here now: in a slot or in this server's own queue */
  readonly here: () => number
  /** the most that were here at the same time since `reset` */
  readonly most: () => number
  /** answers that were whole, since `reset` */
  readonly served: () => number
  readonly reset: () => void
}

const json = { "content-type": "application/json" }
const modelNamed = (name: string) => ({
  name,
  model: name,
  modified_at: "2026-01-01T00:00:00Z",
  size: 1,
  digest: name,
  details: { family: "llama", format: "gguf", parameter_size: "1B", quantization_level: "Q4_0" }
})
const models = ["m:latest", "a:latest", "b:latest"].map(modelNamed)
/** Each answer costs the same, so that shares of tokens are shares of requests. */
const counts = { prompt_eval_count: 10, eval_count: 20 }
const answerOf = (model: string, loadMs: number) =>
  JSON.stringify({
    model,
    created_at: "2026-01-01T00:00:00Z",
    message: { role: "assistant", content: "word ".repeat(20) },
    done: true,
    done_reason: "stop",
    load_duration: Math.round(loadMs * 1_000_000),
    ...counts
  })

interface Waiting {
  readonly response: ServerResponse
  readonly model: string
}

export const makeSlotServer = Effect.fnUntraced(function* (
  slots: number
): Effect.fn.Return<SlotServer, never, Scope.Scope> {
  const waiting: Array<Waiting> = []
  const inSlots = new Map<ServerResponse, NodeJS.Timeout>()
  let [serviceMs, loadMs, most, served, loads] = [200, 0, 0, 0, 0]
  let [loaded, loadedAt] = ["m:latest", 0]
  const here = () => waiting.length + inSlots.size
  const fill = () => {
    while (inSlots.size < slots) {
      const [next] = waiting
      if (next === undefined || (next.model !== loaded && inSlots.size > 0)) return
      waiting.shift()
      const { model, response } = next
      if (model !== loaded) {
        loads += 1
        loaded = model
        loadedAt = performance.now() + loadMs
      }
      const waitMs = Math.max(0, loadedAt - performance.now())
      inSlots.set(
        response,
        setTimeout(() => {
          inSlots.delete(response)
          served += 1
          response
            .writeHead(200, { "content-type": "application/x-ndjson" })
            .end(`${answerOf(model, waitMs)}\n`)
          fill()
        }, waitMs + serviceMs)
      )
    }
  }
  const leave = (response: ServerResponse) => {
    const at = waiting.findIndex((one) => one.response === response)
    if (at !== -1) waiting.splice(at, 1)
    clearTimeout(inSlots.get(response))
    inSlots.delete(response)
    fill()
  }
  const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
    const body: Array<Buffer> = []
    request.on("data", (chunk: Buffer) => void body.push(chunk))
    request.on("end", () => {
      if (request.url === "/api/tags") return response.writeHead(200, json).end(JSON.stringify({ models }))
      if (request.url === "/api/ps")
        return response.writeHead(200, json).end(JSON.stringify({ models: [modelNamed(loaded)] }))
      if (request.method === "GET") return response.writeHead(200, json).end(`{"version":"0.13.0"}`)
      if (request.url === "/api/show") {
        return response.writeHead(200, json).end(`{"capabilities":["completion"],"model_info":{}}`)
      }
      response.on("close", () => leave(response))
      const model = /"model":"([^"]+)"/.exec(Buffer.concat(body).toString())?.[1] ?? ""
      waiting.push({ response, model })
      most = Math.max(most, here())
      return fill()
    })
  })
  const url = yield* listening(server)
  return {
    url,
    setServiceMs: (ms) => void (serviceMs = ms),
    setLoadMs: (ms) => void (loadMs = ms),
    loads: () => loads,
    here,
    most: () => most,
    served: () => served,
    reset: () => {
      most = here()
      served = 0
      loads = 0
    }
  }
})
