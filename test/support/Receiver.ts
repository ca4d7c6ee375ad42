/** A receiver of warnings on a loopback port: what was posted to it, and what it answers. Its URL has a secret path. */
import { createServer } from "node:http"
import { Effect, Redacted, Schema } from "effect"
import { listening } from "./listening.ts"

const decodeMessage = Schema.decodeSync(
  Schema.fromJsonString(
    Schema.Struct({
      text: Schema.String,
      id: Schema.String,
      kind: Schema.String,
      scope: Schema.String,
      tenant: Schema.String,
      key: Schema.NullOr(Schema.String),
      prefix: Schema.NullOr(Schema.String),
      user: Schema.NullOr(Schema.String),
      model: Schema.NullOr(Schema.String),
      period: Schema.String,
      budget: Schema.Finite,
      used: Schema.Finite,
      percent: Schema.Finite,
      at: Schema.String,
      resets_at: Schema.NullOr(Schema.String)
    })
  )
)

interface Posted {
  readonly target: string
  readonly type: string | undefined
  readonly signature: string | undefined
  readonly body: string
}

export const makeReceiver = Effect.gen(function* () {
  const posted: Array<Posted> = []
  const answers: Array<number | "nothing"> = []
  const server = createServer((request, response) => {
    let body = ""
    request.on("data", (chunk) => (body += String(chunk)))
    request.on("end", () => {
      const signature = request.headers["x-tollgate-signature"]
      posted.push({
        target: request.url ?? "",
        type: request.headers["content-type"],
        signature: typeof signature === "string" ? signature : undefined,
        body
      })
      const status = answers.shift() ?? 200
      if (status === "nothing") return
      response.writeHead(status, status >= 300 && status < 400 ? { location: "/elsewhere" } : {})
      // As frameworks do: it repeats the path.
      response.end(`Cannot POST ${request.url}`)
    })
  })
  const origin = yield* listening(server)
  return {
    url: Redacted.make(`${origin}/hidden-word?sig=a%2Fb`),
    posted,
    /** what it answers to the next ones; then 200 */
    next: (...statuses: ReadonlyArray<number | "nothing">) => void answers.push(...statuses),
    messages: () => posted.map(({ body }) => decodeMessage(body))
  }
})
