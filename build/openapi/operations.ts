/**
 * The text of `openapi.json` for each route, in addition to its row in the route table. A missing route does not
 * compile.
 */
import type { Schema } from "effect"
import type { JsonObject } from "../../src/domain/Inference.ts"
import type { Route, routes } from "../../src/http/routes.ts"
import * as Answers from "./answers.ts"
import { ErrorBody, MessagesErrorBody } from "./errors.ts"

export interface Operation {
  /** unique; generated clients use it as the name of a function */
  readonly id: string
  /** the name of the body's schema in the document */
  readonly request?: string
  /** a body, for readers and for tools that try requests */
  readonly example?: JsonObject
  /** the description of a 200, unless it is one object */
  readonly answered?: string
  /** content type → every shape that an answer, or one piece of a stream, can have */
  readonly answers: { readonly [contentType: string]: ReadonlyArray<Schema.Top> }
}

const json = "application/json"
const ndjson = "application/x-ndjson"
const events = "text/event-stream"

/** By method and path, as in `POST /api/chat`. A route that has a body has a name for it. */
type Described = {
  readonly [R in (typeof routes)[number] as `${R["method"]} ${R["path"]}`]: R extends {
    readonly dialect: unknown
  }
    ? Operation & Required<Pick<Operation, "request" | "example">>
    : Operation
}

/** One object. */
const object = (answer: Schema.Top) => ({ answers: { [json]: [answer] } })
/** Frames of the native surface, in lines or as one object. */
const frames = (frame: Schema.Top) => ({
  answered: "NDJSON, or one object with `stream: false`",
  answers: { [ndjson]: [frame, Answers.NativeStreamError], [json]: [frame] }
})
const orEvents = (answer: Schema.Top, ...pieces: ReadonlyArray<Schema.Top>) => ({
  answered: "one object, or server-sent events with `stream: true`",
  answers: { [json]: [answer], [events]: pieces }
})
/** The second form is that of clients that send `anthropic-version`. */
const orAnthropics = (answer: Schema.Top, anthropics: Schema.Top) => ({
  answered: "Anthropic's form with `EXTRA_SURFACES=messages` and a header `anthropic-version`",
  answers: { [json]: [answer, anthropics] }
})

const [model, embedder] = ["llama3.2", "nomic-embed-text"]
const messages = [{ role: "user", content: "Why is the sky blue?" }]

const operations: Described = {
  "POST /api/chat": {
    id: "chat",
    request: "NativeChatRequest",
    example: { model, messages },
    ...frames(Answers.NativeChatFrame)
  },
  "POST /api/generate": {
    id: "generate",
    request: "NativeGenerateRequest",
    example: { model, prompt: "Why is the sky blue?" },
    ...frames(Answers.NativeGenerateFrame)
  },
  "POST /api/embed": {
    id: "embed",
    request: "EmbedRequest",
    example: { model: embedder, input: ["The sky is blue."] },
    ...object(Answers.Embed)
  },
  "POST /api/embeddings": {
    id: "embeddings",
    request: "EmbeddingsRequest",
    example: { model: embedder, prompt: "The sky is blue." },
    ...object(Answers.Embeddings)
  },
  "POST /api/show": { id: "show", request: "ShowRequest", example: { model }, ...object(Answers.Show) },
  "GET /api/tags": { id: "tags", ...object(Answers.Tags) },
  "GET /api/version": { id: "version", ...object(Answers.Version) },
  "GET /api/usage": { id: "usage", ...object(Answers.KeyUsage) },
  "POST /v1/chat/completions": {
    id: "createChatCompletion",
    request: "ChatCompletionRequest",
    example: { model, messages },
    ...orEvents(Answers.ChatCompletion, Answers.ChatCompletionChunk, ErrorBody)
  },
  "POST /v1/completions": {
    id: "createCompletion",
    request: "CompletionRequest",
    example: { model, prompt: "Why is the sky blue?" },
    ...orEvents(Answers.Completion, Answers.Completion, ErrorBody)
  },
  "POST /v1/embeddings": {
    id: "createEmbedding",
    request: "EmbeddingRequest",
    example: { model: embedder, input: "The sky is blue." },
    ...object(Answers.EmbeddingList)
  },
  "POST /v1/responses": {
    id: "createResponse",
    request: "ResponseRequest",
    example: { model, input: "Why is the sky blue?" },
    ...orEvents(Answers.Response, Answers.ResponseEvent)
  },
  "GET /v1/models": {
    id: "listModels",
    ...orAnthropics(Answers.ModelList, Answers.MessagesModelList)
  },
  "GET /v1/models/{id}": {
    id: "retrieveModel",
    ...orAnthropics(Answers.ModelEntry, Answers.MessagesModelEntry)
  },
  "POST /v1/messages": {
    id: "createMessage",
    request: "MessagesRequest",
    example: { model, max_tokens: 256, messages },
    ...orEvents(Answers.MessagesMessage, Answers.MessagesEvent, MessagesErrorBody)
  },
  "POST /v1/messages/count_tokens": {
    id: "countMessageTokens",
    request: "MessagesCountRequest",
    example: { model, messages },
    ...object(Answers.MessagesCount)
  },
  "HEAD /api/hello": { id: "hello", answers: {} },
  "GET /healthz": { id: "healthz", ...object(Answers.Status) },
  "GET /readyz": { id: "readyz", ...object(Answers.Status) },
  "GET /playground": { id: "playground", answers: { "text/html": [Answers.Text] } },
  "GET /metrics": { id: "metrics", answers: { "text/plain": [Answers.Text] } }
}

const byName = new Map<string, Operation>(Object.entries(operations))

export const operationFor = ({ method, path }: Route): Operation => {
  const operation = byName.get(`${method} ${path}`)
  if (operation === undefined) throw new Error(`openapi: ${method} ${path} is not described`)
  return operation
}

/** What a route does, and the setting without which it does not. */
export const summaryOf = ({ extra, summary }: Route): string =>
  extra === undefined ? summary : `${summary}; only with \`EXTRA_SURFACES=${extra}\``

export const needs: Record<Route["needs"], string> = {
  nothing: "no key",
  key: "any key",
  chat: "scope `chat`",
  embeddings: "scope `embeddings`"
}

export const counts: Record<Route["cost"], string> = {
  tokens: "requests and tokens",
  request: "requests",
  unmetered: "nothing",
  free: "nothing"
}
