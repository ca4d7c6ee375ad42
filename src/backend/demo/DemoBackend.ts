/**
 * The built-in demo model server: a small server on a loopback port that speaks Ollama's protocol and gives
 * deterministic answers with correct counts. It is a real server, so that the gateway works as in front of a real
 * one.
 */
import { createServer } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Option, Schedule, Schema, Stream } from "effect"
import { HttpServer, HttpServerRequest, HttpServerResponse } from "effect/http"
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
  textFields,
  vectorOf,
  wordsOf
} from "./wire.ts"

/** Pause between two words. */
const wordMs = 15
const fallbackTokens = 512

const optional = <A>(schema: Schema.Decoder<A>) => Schema.optional(Schema.NullOr(schema))

const Asked = Schema.Struct({
  model: optional(Schema.String),
  name: optional(Schema.String),
  stream: optional(Schema.Boolean),
  messages: optional(Schema.Array(Schema.Struct({ role: Schema.String, content: optional(Schema.String) }))),
  prompt: optional(Schema.String),
  input: optional(Schema.Union([Schema.String, Schema.Array(Schema.String)])),
  dimensions: optional(Schema.Int),
  options: optional(Schema.Struct({ num_predict: optional(Schema.Int) }))
})
type Asked = typeof Asked.Type

const respond = HttpServerResponse.jsonUnsafe

const refused = (status: number, error: string) => respond({ error }, { status })

/** Sends one word at a time until the text ends, the bound is reached, or the client leaves. */
const speak = (kind: Kind) => (asked: Asked, model: string) => {
  if (model !== chatModel) return refused(400, `"${model}" does not support ${kind}`)
  const echoed = asked.model ?? model
  const turns = asked.messages ?? []
  const prompt = kind === "chat" ? turns.map(({ content }) => content ?? "").join("\n") : (asked.prompt ?? "")
  const last = kind === "chat" ? (turns.findLast(({ role }) => role === "user")?.content ?? "") : prompt
  if (prompt === "") return respond(final(kind, echoed, "load"))

  const bound = asked.options?.num_predict ?? fallbackTokens
  const words = wordsOf(replyTo(last))
  const spoken = bound < 0 ? words : words.slice(0, bound)
  const startedMs = performance.now()
  const end = Effect.sync(() =>
    final(kind, echoed, spoken.length < words.length ? "length" : "stop", {
      prompt: countTokens(prompt),
      output: spoken.length,
      startedMs,
      firstMs: Math.min(performance.now(), startedMs + wordMs)
    })
  )
  if (asked.stream === false) {
    const whole = Effect.map(end, (frame) => respond({ ...frame, ...textFields(kind, spoken.join("")) }))
    return Effect.delay(whole, wordMs * spoken.length)
  }
  const frames = Stream.fromIterable(spoken).pipe(
    Stream.schedule(Schedule.spaced(wordMs)),
    Stream.map((word) => piece(kind, echoed, word)),
    Stream.concat(Stream.fromEffect(end)),
    Stream.map((frame) => `${JSON.stringify(frame)}\n`),
    Stream.encodeText
  )
  return HttpServerResponse.stream(frames, { contentType: "application/x-ndjson" })
}

const embed = (asked: Asked) => {
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
  return respond({ model: asked.model ?? "", embeddings, ...counts })
}

type Answer = HttpServerResponse.HttpServerResponse | Effect.Effect<HttpServerResponse.HttpServerResponse>

const posts: Readonly<Record<string, (asked: Asked, model: string) => Answer>> = {
  "/api/chat": speak("chat"),
  "/api/generate": speak("generate"),
  "/api/show": (_asked, model) => respond(showOf(model)),
  "/api/embed": embed,
  "/api/embeddings": (asked) => respond({ embedding: asked.prompt ? vectorOf(asked.prompt) : [] })
}

const app = Effect.gen(function* () {
  const { method, url } = yield* HttpServerRequest.HttpServerRequest
  if (method === "GET" && url === "/api/version") return respond({ version: "1.0.0" })
  if (method === "GET" && url === "/api/tags") return respond(demoTags)
  const answer = method === "POST" ? posts[url] : undefined
  if (answer === undefined) return refused(404, "not found")
  const asked = yield* Effect.option(HttpServerRequest.schemaBodyJson(Asked))
  if (Option.isNone(asked)) return refused(400, "invalid request body")
  const model = knownModel(asked.value.model ?? asked.value.name ?? "")
  if (model === undefined) return refused(404, "model not found")
  const answered = answer(asked.value, model)
  return Effect.isEffect(answered) ? yield* answered : answered
})

/** Runs while the scope is open. */
export const makeDemoBackend = Effect.gen(function* () {
  const server = yield* NodeHttpServer.make(createServer, {
    port: 0,
    host: "127.0.0.1",
    gracefulShutdownTimeout: 0
  })
  yield* server.serve(app)
  return { url: HttpServer.formatAddress(server.address) }
})
