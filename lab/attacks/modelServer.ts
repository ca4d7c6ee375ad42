/** The model server of attacks and soak. The name of a model says who answers. */
import { createServer } from "node:http"
import { tagsEntry } from "../../src/backend/demo/wire.ts"
import { type Answer, type Asked, askedOf } from "./hostile.ts"

const capabilities = ["completion", "tools", "thinking", "insert", "vision", "embedding"]

/** `heard` is told of each request; the tokens that are made for it, whether or not anybody gets them, go to what it returns. */
export const makeModelServer = (
  answers: Readonly<Record<string, Answer>>,
  heard: (asked: Omit<Asked, "generated">) => (tokens: number) => void = () => () => undefined,
  pages: Readonly<Record<string, () => object>> = {}
) => {
  const models = Object.keys(answers).map((name) => tagsEntry(`${name}:latest`, capabilities))
  const known = { "/api/tags": () => ({ models }), ...pages }
  return createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
    const pieces: Array<Buffer> = []
    request.on("data", (piece: Buffer) => pieces.push(piece))
    request.on("error", () => response.destroy())
    request.on("end", () => {
      const json = (value: object) => {
        response.setHeader("content-type", "application/json")
        response.end(JSON.stringify(value))
      }
      const path = request.url ?? ""
      const page = Object.entries(known).find(([name]) => name === path)?.[1]
      if (request.method === "GET") return json(page?.() ?? { version: "0.24.0" })
      const asked = askedOf(path, Buffer.concat(pieces).toString())
      const generated = heard(asked)
      // What a model can do is asked in the background: only a model that is hostile there answers as it pleases.
      if (path === "/api/show" && !asked.model.startsWith("shows-"))
        return json({ capabilities, model_info: {} })
      return answers[asked.model]?.({ ...asked, generated }, response)
    })
  })
}
