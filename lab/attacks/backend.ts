/**
 * The model server of the attacks, in a process of its own: one honest model (`short`) and hostile ones
 * (`hostile.ts`). `GET /stats` says how many calls each model got and how many tokens it made.
 */
import { type Answer, hostile, last, line, streaming, tokensOf } from "./hostile.ts"
import { makeModelServer } from "./modelServer.ts"

interface Stats {
  calls: number
  tokens: number
  /** prompt tokens, as this server counts them */
  prompt: number
}
const stats = new Map<string, Stats>()
const statsOf = (model: string): Stats => {
  const known = stats.get(model) ?? { calls: 0, tokens: 0, prompt: 0 }
  stats.set(model, known)
  return known
}

const short: Answer = (asked, response) => {
  if (asked.path.startsWith("/api/embed")) {
    const vector = [0.5, 0.25]
    response.setHeader("content-type", "application/json")
    response.end(
      JSON.stringify({ model: asked.model, embeddings: [vector], embedding: vector, prompt_eval_count: 3 })
    )
    return
  }
  asked.generated(3)
  streaming(response)
  response.end(line(asked, " word").repeat(3) + last(asked, 3))
}

const server = makeModelServer(
  { ...hostile, short },
  ({ model, path, textBytes }) => {
    const mine = statsOf(path === "/api/show" ? `${model}, shown` : model)
    mine.calls += 1
    mine.prompt += tokensOf(textBytes)
    return (tokens) => void (statsOf(model).tokens += tokens)
  },
  { "/stats": () => Object.fromEntries(stats) }
)
server.listen(Number(process.env["PORT"]), "127.0.0.1")
