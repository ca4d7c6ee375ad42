/**
 * The built-in demo model server: a small server on a loopback port that speaks Ollama's protocol and gives
 * deterministic answers with correct counts. It is a real server, so that the gateway works as in front of a real
 * one.
 */
import { Deferred, Effect, Option, Schema, type Scope } from "effect"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"
import type { Json } from "../../domain/Inference.ts"
import { replyTo } from "./answers.ts"
import {
  chatModel,
  countTokens,
  demoTags,
  final,
  type Kind,
  knownModel,
  piece,
  showOf,
  vectorOf,
  wordsOf
} from "./wire.ts"

export interface DemoBackend {
  readonly url: string
}

export class DemoFailed extends Schema.TaggedError<DemoFailed>()("DemoFailed", { cause: Schema.Defect() }) {}

/** Pause between two words. */
const wordMs = 15
const bodyBytes = 16 * 1024 * 1024
const fallbackTokens = 512

const Text = Schema.optional(Schema.NullOr(Schema.String))
const Asked = Schema.fromJsonString(
  Schema.Struct({
    model: Text,
    name: Text,
    stream: Schema.optional(Schema.NullOr(Schema.Boolean)),
    messages: Schema.optional(
      Schema.NullOr(Schema.Array(Schema.Struct({ role: Schema.String, content: Text })))
    ),
    prompt: Text,
    input: Schema.optional(Schema.NullOr(Schema.Union([Schema.String, Schema.Array(Schema.String)]))),
    dimensions: Schema.optional(Schema.NullOr(Schema.Int)),
    options: Schema.optional(
      Schema.NullOr(Schema.Struct({ num_predict: Schema.optional(Schema.NullOr(Schema.Int)) }))
    )
  })
)
type Asked = typeof Asked.Type
const decode = Schema.decodeUnknownOption(Asked)

const send = (response: ServerResponse, status: number, body: Json): void => {
  response.writeHead(status, { "content-type": "application/json; charset=utf-8" }).end(JSON.stringify(body))
}

const read = async (request: IncomingMessage): Promise<string | undefined> => {
  const chunks: Array<Buffer> = []
  let size = 0
  for await (const chunk of request) {
    const bytes = Buffer.from(chunk)
    size += bytes.length
    if (size > bodyBytes) return undefined
    chunks.push(bytes)
  }
  return Buffer.concat(chunks).toString("utf8")
}

const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
  const route = `${request.method} ${request.url}`
  if (route === "GET /api/version") return send(response, 200, { version: "1.0.0" })
  if (route === "GET /api/tags") return send(response, 200, demoTags)
  const handler = posts.get(route)
  if (handler === undefined) return send(response, 404, { error: "not found" })
  const text = await read(request)
  const asked = text === undefined ? Option.none() : decode(text)
  if (Option.isNone(asked)) return send(response, 400, { error: "invalid request body" })
  const model = knownModel(asked.value.model ?? asked.value.name ?? "")
  if (model === undefined) return send(response, 404, { error: "model not found" })
  return await handler(asked.value, model, response)
}

type Handler = (asked: Asked, model: string, response: ServerResponse) => Promise<void> | void

/** Sends one word at a time until the text ends, the bound is reached, or the client leaves. */
const speak = async (kind: Kind, asked: Asked, model: string, response: ServerResponse): Promise<void> => {
  if (model !== chatModel) return send(response, 400, { error: `"${model}" does not support ${kind}` })
  const echoed = asked.model ?? model
  const turns = asked.messages ?? []
  const prompt = kind === "chat" ? turns.map(({ content }) => content ?? "").join("\n") : (asked.prompt ?? "")
  const last = kind === "chat" ? (turns.findLast(({ role }) => role === "user")?.content ?? "") : prompt
  if (prompt === "") return send(response, 200, final(kind, echoed, "load"))

  const bound = asked.options?.num_predict ?? fallbackTokens
  const words = wordsOf(replyTo(last))
  const spoken = bound < 0 ? words : words.slice(0, bound)
  const startedMs = performance.now()
  const stream = asked.stream ?? true
  if (stream) response.writeHead(200, { "content-type": "application/x-ndjson" })
  for (const word of spoken) {
    await sleep(wordMs)
    if (response.destroyed) return undefined
    if (stream) response.write(`${JSON.stringify(piece(kind, echoed, word))}\n`)
  }
  const end = final(kind, echoed, spoken.length < words.length ? "length" : "stop", {
    prompt: countTokens(prompt),
    output: spoken.length,
    startedMs,
    firstMs: Math.min(performance.now(), startedMs + wordMs)
  })
  if (stream) return void response.end(`${JSON.stringify(end)}\n`)
  const text = spoken.join("")
  return send(response, 200, {
    ...end,
    ...(kind === "chat" ? { message: { role: "assistant", content: text } } : { response: text })
  })
}

const embed: Handler = (asked, _model, response) => {
  const inputs = typeof asked.input === "string" ? [asked.input] : (asked.input ?? [])
  const size = Math.min(64, Math.max(1, asked.dimensions ?? 64))
  const startedMs = performance.now()
  // An empty string alone is no text and only loads the model; in a list it is one.
  const embeddings = asked.input === "" ? [] : inputs.map((text) => vectorOf(text, size))
  const tokens = inputs.reduce((sum, text) => sum + countTokens(text), 0)
  const nanos = Math.max(1, Math.round((performance.now() - startedMs) * 1e6))
  const counts =
    embeddings.length === 0
      ? {}
      : { total_duration: nanos, load_duration: 1_000_000, prompt_eval_count: tokens }
  return send(response, 200, { model: asked.model ?? "", embeddings, ...counts })
}

const posts: ReadonlyMap<string, Handler> = new Map<string, Handler>([
  ["POST /api/chat", (asked, model, response) => speak("chat", asked, model, response)],
  ["POST /api/generate", (asked, model, response) => speak("generate", asked, model, response)],
  ["POST /api/show", (_asked, model, response) => send(response, 200, showOf(model))],
  ["POST /api/embed", embed],
  [
    "POST /api/embeddings",
    (asked, _model, response) =>
      send(response, 200, { embedding: asked.prompt ? vectorOf(asked.prompt) : [] })
  ]
])

export const makeDemoBackend: Effect.Effect<DemoBackend, DemoFailed, Scope.Scope> = Effect.gen(function* () {
  const listening = yield* Deferred.make<number, DemoFailed>()
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const server = createServer((request, response) => {
        // Only a client that leaves within its body gets here, so nobody waits for an answer.
        answer(request, response).catch(() => response.destroy())
      })
      server.on("error", (cause) => Deferred.doneUnsafe(listening, Effect.fail(new DemoFailed({ cause }))))
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        Deferred.doneUnsafe(listening, Effect.succeed(port))
      })
      // It must not keep the process alive.
      return server.unref()
    }),
    (server) =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      })
  )
  return { url: `http://127.0.0.1:${yield* Deferred.await(listening)}` }
})
