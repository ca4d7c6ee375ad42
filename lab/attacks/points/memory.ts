/** Points 1 to 3: memory by bodies, by answers nobody reads, and by what the model server sends. */
import { Effect } from "effect"
import { Arena, mostMiB, newKeys } from "../Arena.ts"
import { type Rows, rowsOf } from "../figures.ts"
import type { Plan } from "../processes.ts"
import type { Assault } from "./Assault.ts"

interface MemoryPlan extends Plan {
  readonly name: string
  /** how many keys of one tenant attack; default 1 */
  readonly keys?: number
  /** per key; default 1 request a minute, 1 token a minute, 1 at a time */
  readonly limits?: { readonly rpm?: number; readonly tpm?: number; readonly concurrent?: number }
}

const least = { rpm: 1, tpm: 1, concurrent: 1 }

const assault =
  (point: number) =>
  ({ keys: keyCount = 1, limits = least, name, ...plan }: MemoryPlan): Assault => ({
    point,
    name,
    run: Effect.fnUntraced(function* (row: Rows) {
      const keys = yield* newKeys(keyCount, limits)
      const victim = yield* (yield* Arena).victim
      const [quietMiB, quietCpu] = [victim.peakMiB(), victim.cpuSeconds()]
      const met = yield* Effect.raceFirst(
        victim.attack(plan, keys),
        Effect.as(victim.gone, { "the process ended": 1 })
      )
      return [
        row.atMost("memory at most, MiB", victim.peakMiB(), mostMiB),
        row.noted("memory before, MiB", quietMiB),
        row.noted("CPU, seconds", victim.cpuSeconds() - quietCpu),
        ...row.met(met)
      ]
    })
  })

const bodies: ReadonlyArray<MemoryPlan> = [
  { name: "one-byte chunks, 8 connections", attack: "one-byte chunks", count: 8 },
  { name: "one-byte chunks, 60 connections", attack: "one-byte chunks", count: 60, seconds: 40 },
  {
    name: "one-byte chunks, 40 keys of one tenant",
    attack: "one-byte chunks",
    count: 200,
    keys: 40,
    seconds: 15
  },
  { name: "sixteen-byte chunks", attack: "sixteen-byte chunks", count: 100 },
  { name: "chunks with extensions", attack: "chunks with extensions", count: 30 },
  {
    name: "one-byte chunks, aborted, again and again",
    attack: "one-byte chunks, again and again",
    count: 16
  },
  { name: "3,500 declared bodies, one byte short", attack: "declared bodies", count: 3500, seconds: 15 },
  { name: "3,500 declared bodies, 100 keys", attack: "declared bodies", count: 3500, keys: 100, seconds: 15 },
  {
    name: "endless body of GET /api/tags",
    attack: "unwanted bodies",
    count: 20,
    path: "/api/tags",
    seconds: 5
  },
  { name: "dense bodies of {}", attack: "dense bodies", count: 40, body: "{}" },
  { name: "dense bodies of [[]]", attack: "dense bodies", count: 40, body: "[[]]" },
  {
    name: "dense bodies of tools",
    attack: "dense bodies",
    count: 40,
    body: '{"type":"function","function":{"name":"f"}}'
  }
]

const embedding = { path: "/api/embed", model: "vectors", limits: { concurrent: 1 } }
const unread: ReadonlyArray<MemoryPlan> = [
  { ...embedding, name: "30 embeddings of 22 MB, unread", attack: "unread", count: 30, rate: 4, seconds: 12 },
  {
    ...embedding,
    name: "embeddings, unread, again and again",
    attack: "unread, again and again",
    count: 20,
    seconds: 12
  },
  {
    ...embedding,
    name: "embeddings, unread, 30 keys of one tenant",
    attack: "unread, again and again",
    count: 30,
    keys: 30,
    limits: { concurrent: 100 },
    seconds: 12
  },
  {
    ...embedding,
    name: "embeddings, left when they begin",
    attack: "leaving",
    count: 10,
    limits: { concurrent: 10 }
  },
  {
    name: "300 streams of 1 MB frames, unread",
    attack: "unread",
    count: 300,
    rate: 100,
    model: "megabytes",
    limits: { concurrent: 1000 },
    seconds: 15
  },
  { name: "lists pipelined, unread", attack: "pipelined, unread", count: 30, path: "/api/tags", limits: {} },
  { name: "embeddings pipelined, unread", attack: "pipelined, unread", count: 4, ...embedding }
]

const wide = { rpm: 100_000, tpm: 1_000_000_000, concurrent: 4 }
const flood = (model: string, more: Partial<MemoryPlan> = {}): MemoryPlan => ({
  name: `${model}${more.path === undefined ? "" : `, ${more.path}`}${more.stream === false ? ", not streamed" : ""}`,
  attack: "greedy",
  model,
  count: 4,
  limits: wide,
  ...more
})
const many = { count: 40, limits: { rpm: 100_000, tpm: 1_000_000_000, concurrent: 100 } }
const v1 = { path: "/v1/chat/completions" }
/** One for each bound on an answer (`test/unit/backend/ollama/answerBounds.test.ts`), and many below their bounds at a time. */
const floods: ReadonlyArray<MemoryPlan> = [
  flood("logprobs"),
  flood("logprobs", { ...v1, stream: false }),
  flood("fat-logprobs"),
  flood("seven-megabytes"),
  flood("megabytes", { stream: false }),
  flood("tool-calls", { stream: false }),
  flood("nested-tool-calls", { stream: false, seconds: 5 }),
  flood("endless-line"),
  flood("empty-frames", { stream: false }),
  flood("unknown-fields", { stream: false }),
  flood("one-byte-writes", { stream: false, seconds: 5 }),
  flood("endless-final"),
  flood("fat-context", { path: "/api/generate", stream: false }),
  flood("fat-refusal", { limits: { ...wide, rpm: 30 } }),
  flood("endless-vector", { path: "/api/embed" }),
  flood("empty-vectors", { path: "/v1/embeddings" }),
  flood("uneven-vectors", { path: "/v1/embeddings", body: "base64" }),
  flood("shows-endless", { path: "/api/show" }),
  flood("vectors", { name: "40 embeddings of 22 MB at a time", path: "/api/embed", ...many }),
  flood("vectors", {
    name: "40 answers of /v1/embeddings in base64 at a time",
    path: "/v1/embeddings",
    body: "base64",
    ...many
  }),
  flood("logprobs", { name: "40 answers of log-probabilities at a time", stream: false, ...many }),
  flood("empty-objects", {
    name: "40 answers of tool calls of empty objects at a time",
    stream: false,
    ...many
  }),
  flood("shows-empty-objects", {
    name: "40 descriptions of empty objects at a time",
    path: "/api/show",
    ...many
  }),
  flood("seven-megabytes", { name: "40 streams of 7 MB frames at a time", ...many })
]

/** Those that took most alone, at the same time. */
const crowd: ReadonlyArray<MemoryPlan> = [
  { name: "declared bodies", attack: "declared bodies", count: 400 },
  {
    name: "waiting bodies",
    attack: "waiting bodies",
    count: 200,
    model: "silent",
    keys: 25,
    limits: { concurrent: 8 }
  },
  {
    name: "streams of 1 MB frames",
    attack: "unread",
    count: 50,
    rate: 100,
    model: "megabytes",
    limits: { concurrent: 1000 }
  },
  { ...flood("vectors", many), name: "vectors", count: 10, path: "/v1/embeddings", body: "base64" },
  { ...flood("empty-objects", many), name: "tool calls", count: 10, stream: false }
]

const atOnce: Assault = {
  point: 21,
  name: "five attackers at once",
  run: Effect.fnUntraced(function* (row: Rows) {
    const victim = yield* (yield* Arena).victim
    const met = yield* Effect.raceFirst(
      Effect.forEach(
        crowd,
        ({ keys = 1, limits = least, name: _name, ...plan }) =>
          Effect.flatMap(newKeys(keys, limits), (own) => victim.attack({ seconds: 20, ...plan }, own)),
        { concurrency: "unbounded" }
      ),
      Effect.as(victim.gone, [{ "the process ended": 1 }])
    )
    return [
      row.atMost("memory at most, MiB", victim.peakMiB(), mostMiB),
      ...met.flatMap((one, i) => rowsOf(21, `five attackers at once, ${crowd[i]?.name ?? ""}`).met(one))
    ]
  })
}

export const memory: ReadonlyArray<Assault> = [
  ...bodies.map(assault(1)),
  ...unread.map(assault(2)),
  ...floods.map(assault(3)),
  atOnce
]
