/**
 * A backend that misbehaves on request: a real server on a loopback port, scripted one behaviour per inference call,
 * recording what it was sent byte for byte and what Go would have made of it.
 *
 * With nothing scripted it answers faithfully: `Hello`, ` world`, `!`, counts 7 and 3; vectors of eight numbers that
 * depend on the text alone, 4 tokens a text; a description that holds everything a gateway has to take out.
 */
import { Effect, type Scope } from "effect"
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo, Socket } from "node:net"
import { setTimeout as sleep } from "node:timers/promises"
import { final, type Kind, piece, showOf, tagsEntry, vectorOf } from "../../src/backend/demo/wire.ts"
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { isObject } from "../../src/domain/json.ts"
import { behave, type Behaviour } from "./Behaviour.ts"
import { maxWaitMs, ownTimeMs } from "./wait.ts"

export type { Behaviour } from "./Behaviour.ts"

export interface Recorded {
  readonly method: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly raw: string
  /** the body as Go reads it: keys without regard to case, the last of several wins; undefined when not JSON */
  readonly body: JsonObject | undefined
  /** `ownTimeMs` when the client went away before the answer was complete */
  closedAt: number | undefined
  /** bytes of the answer written so far */
  written: number
  /** which connection it came on, counted from 0 */
  readonly connection: number
}

export interface FakeBackend {
  readonly url: string
  readonly port: number
  /** POST calls, in order of arrival */
  readonly requests: ReadonlyArray<Recorded>
  /** list, version and other GET calls */
  readonly lookups: ReadonlyArray<Recorded>
  /** `/api/show` as discovery asks it, which is not counted among the calls: it accepts nothing but JSON */
  readonly descriptions: ReadonlyArray<Recorded>
  /** what the next inference calls meet, one each; afterwards it is faithful again */
  script(...next: ReadonlyArray<Behaviour>): void
  /** what every inference call meets when nothing is scripted, or what it does with the call; undefined: faithful */
  always(behaviour: Behaviour | ((request: Recorded) => Behaviour) | undefined): void
  /** what discovery is told of a model that `/api/tags` has no word about; by name */
  setDescription(name: string, behaviour: Behaviour): void
  /** `/api/tags`: names (chat models that can use tools and think) or whole entries */
  setModels(models: ReadonlyArray<string | JsonObject>): void
  /** what GET calls meet instead of their answer; undefined: the answer */
  onLookup(behaviour: Behaviour | undefined): void
  /** inference calls under way, and the most there were at the same time */
  readonly running: number
  readonly maxRunning: number
  /** connections accepted so far */
  readonly connections: number
  /** Waits until `condition` holds; dies when it never does. */
  until(condition: () => boolean): Effect.Effect<void>
}

/** Lines of the wire, for scripts. */
export const fake = {
  /** What an unscripted chat says, in one write. Costs 7 and 3 where the bound is at least 3; a lower one cuts it. */
  atOnce: (): Behaviour => ({
    does: "stream",
    lines: [...["Hello", " world", "!"].map((text) => fake.chat(text)), fake.done()],
    together: true
  }),
  chat: (text: string): JsonObject => piece("chat", "fake", text),
  generate: (text: string): JsonObject => piece("generate", "fake", text),
  done: (kind: Kind = "chat", more: JsonObject = {}): JsonObject => ({
    ...final(kind, "fake", "stop"),
    total_duration: 5_000_000,
    load_duration: 1_000_000,
    prompt_eval_count: 7,
    prompt_eval_duration: 1_000_000,
    eval_count: 3,
    eval_duration: 3_000_000,
    ...more
  }),
  thinking: (text: string): JsonObject => ({
    ...piece("chat", "fake", ""),
    message: { role: "assistant", content: "", thinking: text }
  }),
  toolCall: (name: string, args: JsonObject, id?: string): JsonObject => ({
    ...piece("chat", "fake", ""),
    message: {
      role: "assistant",
      content: "",
      tool_calls: [{ ...(id === undefined ? {} : { id }), function: { index: 0, name, arguments: args } }]
    }
  }),
  error: (text: string): JsonObject => ({ error: text }),
  /** what `/api/show` tells discovery */
  described: (capabilities: ReadonlyArray<string>, contextLength: number): Behaviour =>
    answer({ model_info: contextOf(contextLength), capabilities })
} as const

/** Go matches keys by Unicode simple folding: the long s and the Kelvin sign are letters too. */
export const folded = (key: string): string =>
  key.replaceAll("\u017f", "s").replaceAll("\u212a", "k").toLowerCase()

/** The order of keys in the text decides, and JSON.parse keeps it except for integer-like and repeated keys. */
export const decodeLikeGo = (text: string): JsonObject | undefined => {
  try {
    const value: Json = JSON.parse(text)
    if (!isObject(value)) return undefined
    const seen: Record<string, Json> = {}
    for (const [key, inner] of Object.entries(value)) seen[folded(key)] = inner
    return seen
  } catch {
    // A body that is not JSON is recorded as such.
    return undefined
  }
}

export const makeFakeBackend: Effect.Effect<FakeBackend, never, Scope.Scope> = Effect.map(
  Effect.acquireRelease(
    Effect.callback<Fake>((resume) => {
      const made = new Fake()
      made.server.listen(0, "127.0.0.1", () => resume(Effect.succeed(made)))
    }),
    (made) =>
      Effect.callback<void>((resume) => {
        made.server.close(() => resume(Effect.void))
        made.server.closeAllConnections()
        for (const socket of made.sockets.keys()) socket.destroy()
      })
  ),
  (made): FakeBackend => made
)

class Fake implements FakeBackend {
  readonly requests: Array<Recorded> = []
  readonly lookups: Array<Recorded> = []
  readonly descriptions: Array<Recorded> = []
  readonly sockets = new Map<Socket, number>()
  connections = 0
  running = 0
  maxRunning = 0
  #next: Array<Behaviour> = []
  #always: ((request: Recorded) => Behaviour) | undefined
  #lookup: Behaviour | undefined
  readonly #described = new Map<string, Behaviour>()
  #tags: ReadonlyArray<JsonObject> = [tagsEntry("fake:latest", ["completion", "tools"])]

  readonly server = createServer((request, response) => {
    // The client may leave while its body is read: the record then simply never comes to be.
    this.#serve(request, response).catch(() => response.destroy())
  }).on("connection", (socket) => {
    this.sockets.set(socket, this.connections)
    this.connections += 1
    socket.on("error", () => socket.destroy())
    socket.on("close", () => this.sockets.delete(socket))
  })

  get port(): number {
    const address: AddressInfo | string | null = this.server.address()
    return typeof address === "object" && address !== null ? address.port : 0
  }
  get url(): string {
    return `http://127.0.0.1:${this.port}`
  }
  script(...next: ReadonlyArray<Behaviour>): void {
    this.#next.push(...next)
  }
  always(behaviour: Behaviour | ((request: Recorded) => Behaviour) | undefined): void {
    this.#always = behaviour === undefined || typeof behaviour === "function" ? behaviour : () => behaviour
  }
  onLookup(behaviour: Behaviour | undefined): void {
    this.#lookup = behaviour
  }
  setModels(models: ReadonlyArray<string | JsonObject>): void {
    this.#tags = models.map((model) =>
      typeof model === "string" ? tagsEntry(model, ["completion", "tools", "thinking"]) : model
    )
  }
  setDescription(name: string, behaviour: Behaviour): void {
    this.#described.set(name, behaviour)
  }
  until(condition: () => boolean): Effect.Effect<void> {
    return Effect.promise(async () => {
      const deadline = performance.now() + maxWaitMs
      while (!condition()) {
        if (performance.now() > deadline) throw new Error(`never came true: ${condition.toString()}`)
        await sleep(2)
      }
    })
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Array<Buffer> = []
    for await (const chunk of request) chunks.push(Buffer.from(chunk))
    const raw = Buffer.concat(chunks).toString("utf8")
    const recorded: Recorded = {
      method: request.method ?? "",
      path: request.url ?? "",
      headers: request.headers,
      raw,
      body: decodeLikeGo(raw),
      closedAt: undefined,
      written: 0,
      connection: this.sockets.get(request.socket) ?? -1
    }
    response.on("close", () => {
      if (!response.writableFinished) recorded.closedAt = ownTimeMs()
    })
    if (recorded.method !== "POST") {
      this.lookups.push(recorded)
      if (this.#lookup !== undefined) return await behave(this.#lookup, response, recorded)
      const body = recorded.path === "/api/tags" ? { models: this.#tags } : { version: "0.33.0" }
      return await behave({ does: "answer", status: 200, body: JSON.stringify(body) }, response, recorded)
    }
    if (recorded.path === "/api/show" && recorded.headers.accept === "application/json") {
      this.descriptions.push(recorded)
      const name = String(recorded.body?.["model"])
      const listed = this.#tags.find((entry) => entry["name"] === name)
      const told = answer({ model_info: contextOf(8192), capabilities: listed?.["capabilities"] ?? null })
      return await behave(this.#lookup ?? this.#described.get(name) ?? told, response, recorded)
    }
    this.requests.push(recorded)
    this.running += 1
    this.maxRunning = Math.max(this.maxRunning, this.running)
    response.on("close", () => void (this.running -= 1))
    return await behave(this.#next.shift() ?? (this.#always ?? faithful)(recorded), response, recorded)
  }
}

const faithful = ({ path, body }: Recorded): Behaviour => {
  switch (path) {
    case "/api/embed":
      return answer(embedded(body ?? {}))
    case "/api/embeddings":
      return answer({ embedding: vectors(body?.["prompt"] ?? "").flat() })
    case "/api/show":
      return answer(shown)
    default: {
      const kind = path === "/api/generate" ? "generate" : "chat"
      const nothing = kind === "chat" ? body?.["messages"] : body?.["prompt"]
      if (nothing === "" || (Array.isArray(nothing) && nothing.length === 0)) {
        return answer(final(kind, "fake", "load"))
      }
      const words = ["Hello", " world", "!"].map((word) => piece(kind, "fake", word))
      return { does: "stream", lines: [...words, fake.done(kind)] }
    }
  }
}

const contextOf = (tokens: number): JsonObject => ({
  "general.architecture": "llama",
  "llama.context_length": tokens
})

const answer = (body: JsonObject): Behaviour => ({ does: "answer", status: 200, body: JSON.stringify(body) })

/** An empty string alone is no text; in a list it is one. */
const vectors = (input: Json): ReadonlyArray<ReadonlyArray<number>> =>
  (Array.isArray(input) ? input : input === "" ? [] : [input]).map((text) => vectorOf(String(text), 8))

const embedded = (body: JsonObject): JsonObject => {
  const embeddings = vectors(body["input"] ?? "")
  const counts = {
    total_duration: 5_000_000,
    load_duration: 1_000_000,
    prompt_eval_count: 4 * embeddings.length
  }
  return { model: "fake", embeddings, ...(embeddings.length === 0 ? {} : counts) }
}

const shown: JsonObject = {
  ...showOf("fake:latest"),
  messages: [{ role: "system", content: "SECRET message" }],
  remote_host: "https://SECRET.example",
  remote_model: "SECRET-remote",
  modelfile: "FROM /SECRET/blobs/sha256-1",
  system: "SECRET system",
  template: "SECRET template",
  details: {
    parent_model: "/SECRET/parent",
    format: "gguf",
    family: "llama",
    families: ["llama"],
    parameter_size: "8B",
    quantization_level: "Q4_0"
  },
  model_info: {
    "general.architecture": "llama",
    "llama.context_length": 8192,
    "tokenizer.chat_template": "SECRET jinja",
    "tokenizer.chat_template.tool_use": "SECRET jinja",
    nested: { deep: [{ chat_template: "SECRET jinja", kept: 1 }] }
  },
  projector_info: { "general.architecture": "clip", "tokenizer.chat_template": "SECRET jinja" },
  capabilities: ["completion"],
  tensors: [{ name: "output.weight", type: "Q6_K", shape: [4096, 32_000] }],
  _something_new: "SECRET field"
}
