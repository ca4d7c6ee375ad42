/** What the contenders are asked to do. */
import type { ContenderName } from "./contenders.ts"

export interface Work {
  readonly name: string
  readonly path: string
  readonly model: string
  /** the rest of the body */
  readonly request: Readonly<Record<string, unknown>>
  /** how many words stand in the body for `{words}` */
  readonly words?: number
  readonly connections: number
  /** frames a request has, when what counts is the cost of a frame */
  readonly frames?: number
  /** at half the rate at which Tollgate is saturated, on as many connections as it takes */
  readonly half?: true
  /** requests a second, whatever becomes of them; without it as many as there are connections at a time */
  readonly rate?: number
  /** frames carry the time they were sent */
  readonly paced?: true
  /** who calls; default `good` */
  readonly key?: "good" | "nobody" | "poor"
  /** who can do it; default all */
  readonly only?: ReadonlyArray<ContenderName>
}

/** The body; Bifrost wants a prefix before the name of the model, which says what provider has it. */
export const bodyOf = ({ model, request }: Pick<Work, "model" | "request">, prefix = ""): string =>
  JSON.stringify({ model: prefix + model, ...request })

const chat = (model: string, stream: boolean) => ({
  model,
  request: { stream, messages: [{ role: "user", content: "Hello" }] }
})
const embeddings = { model: "short", request: { input: Array.from({ length: 64 }, (_, n) => `input ${n}`) } }

const gateways = ["tollgate", "twins"] as const
const native = ["floor", ...gateways] as const
const refused = { path: "/api/chat", connections: 50, only: gateways } as const
const openai = { path: "/v1/chat/completions" } as const

/** Many answers that a GPU makes together: the frames of all come at the same moment. */
const step = (model: string) => ({ ...openai, ...chat(model, true), frames: 100, paced: true }) as const

/** The works of the table. */
export const table = {
  json32: { ...openai, ...chat("short", false), name: "JSON, 32 connections", connections: 32 },
  json96: { ...openai, ...chat("short", false), name: "JSON, 96 connections", connections: 96 },
  stream32: {
    ...openai,
    ...chat("short", true),
    name: "streams of 3 frames, 32 connections",
    connections: 32
  },
  stream96: {
    ...openai,
    ...chat("short", true),
    name: "streams of 3 frames, 96 connections",
    connections: 96
  },
  paced: {
    ...openai,
    ...chat("paced", true),
    name: "200 streams at 50 frames a second",
    connections: 200,
    frames: 100,
    paced: true
  },
  step16: { ...step("step55"), name: "16 streams in step, a frame each per 55 ms", connections: 16 },
  step64: { ...step("step20"), name: "64 streams in step, a frame each per 20 ms", connections: 64 },
  first200: {
    ...openai,
    ...chat("short", true),
    name: "first byte of a stream, 200 a second",
    connections: 32,
    rate: 200
  },
  first600: {
    ...openai,
    ...chat("short", true),
    name: "first byte of a stream, 600 a second",
    connections: 32,
    rate: 600
  },
  embeddings: {
    path: "/api/embed",
    ...embeddings,
    name: "embeddings of 64 inputs × 384",
    connections: 20,
    only: native
  }
} as const satisfies Readonly<Record<string, Work>>

export const works: ReadonlyArray<Work> = [
  {
    name: "short answers, one object",
    path: "/api/chat",
    ...chat("short", false),
    connections: 50,
    only: native
  },
  { name: "short answers, OpenAI's surface", ...openai, ...chat("short", false), connections: 50 },
  {
    name: "half load, one object",
    path: "/api/chat",
    ...chat("short", false),
    connections: 50,
    half: true,
    only: native
  },
  {
    name: "half load, streams",
    path: "/api/chat",
    ...chat("short", true),
    connections: 50,
    half: true,
    only: native
  },
  {
    name: "streams of 200 frames as fast as they come",
    path: "/api/chat",
    ...chat("burst", true),
    connections: 20,
    frames: 200,
    only: native
  },
  {
    name: "300 streams at 20 ms a frame",
    path: "/api/chat",
    ...chat("paced", true),
    connections: 300,
    frames: 100,
    paced: true,
    only: native
  },
  {
    name: "300 streams at 20 ms a frame, SSE",
    ...openai,
    ...chat("paced", true),
    connections: 300,
    frames: 100,
    paced: true,
    only: native
  },
  { name: "embeddings of 64 inputs", path: "/api/embed", ...embeddings, connections: 20, only: native },
  {
    // The default of OpenAI's clients. The floor forwards the numbers.
    name: "embeddings of 64 inputs, base64",
    path: "/v1/embeddings",
    model: embeddings.model,
    request: { ...embeddings.request, encoding_format: "base64" },
    connections: 20,
    only: native
  },
  {
    name: "a prompt of 200 KB",
    ...openai,
    model: "short",
    request: { stream: false, messages: [{ role: "user", content: "{words}" }] },
    words: 40_000,
    connections: 20,
    only: native
  },
  {
    ...refused,
    name: "refused: 401, held to 200 a second by the tarpit",
    ...chat("short", false),
    key: "nobody"
  },
  { ...refused, name: "refused: 403, a model there is not", ...chat("nothing", false) },
  { ...refused, name: "refused: 429, requests per minute", ...chat("short", false), key: "poor" }
]
