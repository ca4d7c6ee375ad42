/** What is asked of the real server for the recordings, and of the double to compare it. */
import type { JsonObject } from "../../../src/domain/Inference.ts"

export interface Asked {
  readonly name: string
  readonly path: string
  /** absent: GET */
  readonly body?: JsonObject | string
}

const messages = [{ role: "user", content: "hi" }]
const options = { seed: 1, num_predict: 4 }
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] }
  }
}

export const asked: ReadonlyArray<Asked> = [
  { name: "version", path: "/api/version" },
  { name: "tags", path: "/api/tags" },
  { name: "show", path: "/api/show", body: { model: "tiny" } },
  { name: "chat", path: "/api/chat", body: { model: "plain", messages, options } },
  { name: "chat that thinks", path: "/api/chat", body: { model: "think", messages, think: true, options } },
  {
    name: "chat that calls a tool",
    path: "/api/chat",
    body: { model: "tools", messages, tools: [weather], options: { seed: 1, num_predict: 60 } }
  },
  { name: "chat that loads", path: "/api/chat", body: { model: "plain", messages: [] } },
  { name: "generate", path: "/api/generate", body: { model: "plain", prompt: "hi", options } },
  { name: "generate that loads", path: "/api/generate", body: { model: "plain", prompt: "" } },
  { name: "embed", path: "/api/embed", body: { model: "embed", input: ["one", "two"] } },
  { name: "embed of nothing", path: "/api/embed", body: { model: "embed", input: [] } },
  { name: "embeddings", path: "/api/embeddings", body: { model: "embed", prompt: "one" } },
  { name: "unknown model", path: "/api/chat", body: { model: "nobody", messages } },
  {
    name: "tools on a model without",
    path: "/api/chat",
    body: { model: "plain", messages, tools: [weather] }
  },
  {
    name: "a loop that ends without a last frame",
    path: "/api/generate",
    body: {
      model: "plain",
      prompt: "~",
      raw: true,
      options: { temperature: 0, repeat_penalty: 1, num_predict: 200 }
    }
  }
]
