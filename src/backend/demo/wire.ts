/** Answers of a model server as plain objects (docs/protocol.md, "Chat", "Generate", "Embeddings"). */
import { createHash } from "node:crypto"
import type { JsonObject } from "../../domain/Inference.ts"

export const chatModel = "demo-chat:latest"
export const embedModel = "demo-embed:latest"

/** Finds a model as Ollama does: by short or full name, in any case. */
export const knownModel = (name: string): string | undefined => {
  const asked = name.trim().toLowerCase()
  return [chatModel, embedModel].find(
    (model) => asked === model || asked === model.slice(0, -":latest".length)
  )
}

const details: JsonObject = {
  parent_model: "",
  format: "gguf",
  family: "demo",
  families: ["demo"],
  parameter_size: "1M",
  quantization_level: "Q4_0"
}

export const tagsEntry = (name: string, capabilities: ReadonlyArray<string>): JsonObject => ({
  name,
  model: name,
  modified_at: "2026-01-01T00:00:00Z",
  size: 1_048_576,
  digest: createHash("sha256").update(name).digest("hex"),
  details,
  capabilities
})

export const demoTags: JsonObject = {
  models: [tagsEntry(chatModel, ["completion"]), tagsEntry(embedModel, ["embedding"])]
}

export const showOf = (model: string): JsonObject => ({
  license: "MIT",
  modelfile: `FROM ${model}\nSYSTEM demo system prompt`,
  parameters: "num_ctx                        8192",
  template: "{{ .System }} {{ .Prompt }}",
  system: "demo system prompt",
  details,
  model_info: {
    "general.architecture": "demo",
    "demo.context_length": 8192,
    "demo.embedding_length": dimensions
  },
  capabilities: model === chatModel ? ["completion"] : ["embedding"],
  modified_at: "2026-01-01T00:00:00Z"
})

export type Kind = "chat" | "generate"

export const textFields = (kind: Kind, text: string): JsonObject =>
  kind === "chat" ? { message: { role: "assistant", content: text } } : { response: text }

export const piece = (kind: Kind, model: string, text: string): JsonObject => ({
  model,
  created_at: new Date().toISOString(),
  ...textFields(kind, text),
  done: false
})

export interface Counts {
  readonly prompt: number
  readonly output: number
  readonly startedMs: number
  readonly firstMs: number
}

/** Durations in nanoseconds, as measured. */
export const final = (kind: Kind, model: string, reason: string, counts?: Counts): JsonObject => ({
  model,
  created_at: new Date().toISOString(),
  ...textFields(kind, ""),
  done: true,
  done_reason: reason,
  ...(counts === undefined ? {} : durations(counts))
})

const durations = (counts: Counts): JsonObject => {
  const nanos = (fromMs: number, toMs: number) => Math.max(1, Math.round((toMs - fromMs) * 1e6))
  const now = performance.now()
  return {
    total_duration: nanos(counts.startedMs, now),
    load_duration: 1_000_000,
    prompt_eval_count: counts.prompt,
    prompt_eval_duration: nanos(counts.startedMs, counts.firstMs),
    eval_count: counts.output,
    eval_duration: nanos(counts.firstMs, now)
  }
}

/** A rough token count. */
export const countTokens = (text: string): number => Math.max(1, Math.ceil(Buffer.byteLength(text) / 4))

/** The words of an answer, blanks kept with the word they precede: one frame each. */
export const wordsOf = (text: string): ReadonlyArray<string> => text.match(/(?<!\s)\s*\S+/g) ?? []

const dimensions = 64

/** A vector of unit length that depends on the text alone: hashed words, so that similar texts come out close. */
export const vectorOf = (text: string, size = dimensions): ReadonlyArray<number> => {
  const sum = Array.from({ length: size }, () => 0)
  for (const word of [...text.toLowerCase().matchAll(/[\p{L}\p{N}]+/gu)].map(([word]) => word).concat("")) {
    const digest = createHash("sha512").update(word).digest()
    for (let i = 0; i < size; i += 1) sum[i] = (sum[i] ?? 0) + digest.readInt8(i % digest.length) / 128
  }
  const length = Math.hypot(...sum) || 1
  return sum.map((value) => Math.fround(value / length))
}
