/**
 * A model server with a few slots and a queue of its own, first come, first served. An answer takes a slot for a fixed
 * time. A request whose client is gone leaves at once, as it leaves a real one.
 */
import { createServer, type ServerResponse } from "node:http"
import { Effect, type Scope } from "effect"
import { listening } from "../../../test/support/listening.ts"

export interface SlotServer {
  readonly url: string
  /** how long an answer takes from now on, milliseconds */
  readonly setServiceMs: (ms: number) => void
  /** requests that are here now: in a slot or in this server's own queue */
  readonly here: () => number
  /** the most that were here at the same time since `reset` */
  readonly most: () => number
  /** answers that were whole, since `reset` */
  readonly served: () => number
  readonly reset: () => void
}

const json = { "content-type": "application/json" }
const model = {
  name: "m:latest",
  model: "m:latest",
  modified_at: "2026-01-01T00:00:00Z",
  size: 1,
  digest: "m",
  details: { family: "llama", format: "gguf", parameter_size: "1B", quantization_level: "Q4_0" }
}
/** Each answer costs the same, so that shares of tokens are shares of requests. */
const answer = JSON.stringify({
  model: "m:latest",
  created_at: "2026-01-01T00:00:00Z",
  message: { role: "assistant", content: "word ".repeat(20) },
  done: true,
  done_reason: "stop",
  prompt_eval_count: 10,
  eval_count: 20
})

export const makeSlotServer = Effect.fnUntraced(function* (
  slots: number
): Effect.fn.Return<SlotServer, never, Scope.Scope> {
  const waiting: Array<ServerResponse> = []
  const inSlots = new Map<ServerResponse, NodeJS.Timeout>()
  let [serviceMs, most, served] = [200, 0, 0]
  const here = () => waiting.length + inSlots.size
  const fill = () => {
    while (inSlots.size < slots) {
      const response = waiting.shift()
      if (response === undefined) return
      inSlots.set(
        response,
        setTimeout(() => {
          inSlots.delete(response)
          served += 1
          response.writeHead(200, { "content-type": "application/x-ndjson" }).end(`${answer}\n`)
          fill()
        }, serviceMs)
      )
    }
  }
  const leave = (response: ServerResponse) => {
    const at = waiting.indexOf(response)
    if (at !== -1) waiting.splice(at, 1)
    clearTimeout(inSlots.get(response))
    inSlots.delete(response)
    fill()
  }
  const server = createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
    request.resume().on("end", () => {
      if (request.url === "/api/tags" || request.url === "/api/ps")
        return response.writeHead(200, json).end(JSON.stringify({ models: [model] }))
      if (request.method === "GET") return response.writeHead(200, json).end(`{"version":"0.13.0"}`)
      if (request.url === "/api/show") {
        return response.writeHead(200, json).end(`{"capabilities":["completion"],"model_info":{}}`)
      }
      response.on("close", () => leave(response))
      waiting.push(response)
      most = Math.max(most, here())
      return fill()
    })
  })
  const url = yield* listening(server)
  return {
    url,
    setServiceMs: (ms) => void (serviceMs = ms),
    here,
    most: () => most,
    served: () => served,
    reset: () => {
      most = here()
      served = 0
    }
  }
})
