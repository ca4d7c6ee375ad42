/** What the contenders are asked to do. */
import type { ContenderName } from "./contenders.ts"

export interface Work {
  readonly name: string
  readonly path: string
  readonly body: string
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

const chat = (model: string, stream: boolean) =>
  JSON.stringify({ model, stream, messages: [{ role: "user", content: "Hello" }] })

const gateways = ["tollgate", "twins"] as const
const native = ["floor", ...gateways] as const
const refused = { path: "/api/chat", connections: 50, only: gateways } as const

export const works: ReadonlyArray<Work> = [
  {
    name: "short answers, one object",
    path: "/api/chat",
    body: chat("short", false),
    connections: 50,
    only: native
  },
  {
    name: "short answers, OpenAI's surface",
    path: "/v1/chat/completions",
    body: chat("short", false),
    connections: 50
  },
  {
    name: "half load, one object",
    path: "/api/chat",
    body: chat("short", false),
    connections: 50,
    half: true,
    only: native
  },
  {
    name: "half load, streams",
    path: "/api/chat",
    body: chat("short", true),
    connections: 50,
    half: true,
    only: native
  },
  {
    name: "streams of 200 frames as fast as they come",
    path: "/api/chat",
    body: chat("burst", true),
    connections: 20,
    frames: 200,
    only: native
  },
  {
    name: "300 streams at 20 ms a frame",
    path: "/api/chat",
    body: chat("paced", true),
    connections: 300,
    frames: 100,
    paced: true,
    only: native
  },
  {
    name: "300 streams at 20 ms a frame, SSE",
    path: "/v1/chat/completions",
    body: chat("paced", true),
    connections: 300,
    frames: 100,
    paced: true,
    only: native
  },
  {
    name: "embeddings of 64 inputs",
    path: "/api/embed",
    body: JSON.stringify({ model: "short", input: Array.from({ length: 64 }, (_, n) => `input ${n}`) }),
    connections: 20,
    only: native
  },
  {
    ...refused,
    name: "refused: 401, held to 200 a second by the tarpit",
    body: chat("short", false),
    key: "nobody"
  },
  { ...refused, name: "refused: 403, a model there is not", body: chat("nothing", false) },
  { ...refused, name: "refused: 429, requests per minute", body: chat("short", false), key: "poor" }
]
