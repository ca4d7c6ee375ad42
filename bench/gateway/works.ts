/** What the contenders are asked to do. */
import type { ContenderName } from "./contenders.ts"

export interface Work {
  readonly name: string
  readonly path: string
  readonly model: string
  /** the rest of the body */
  readonly request: Readonly<Record<string, unknown>>
  readonly connections: number
  /** frames a request has, when what counts is the cost of a frame */
  readonly frames?: number
  /** requests a second, whatever becomes of them; without it as many as there are connections at a time */
  readonly rate?: number
  /** frames carry the time they were sent */
  readonly paced?: true
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
    model: "short",
    request: { input: Array.from({ length: 64 }, (_, n) => `input ${n}`) },
    name: "embeddings of 64 inputs × 384",
    connections: 20,
    // Bifrost does not speak the native wire.
    only: ["floor", "floor with stores", "tollgate"]
  }
} as const satisfies Readonly<Record<string, Work>>
