/**
 * What a request costs to decode, from its bytes to what the pipeline works with, and what a frame costs to encode,
 * for each surface. `node bench/codec.ts`: µs of CPU, five runs after a warm-up.
 */
import { Result } from "effect"
import type { Frame } from "../src/domain/Frame.ts"
import type { InferenceRequest, JsonObject } from "../src/domain/Inference.ts"
import { parseBody } from "../src/http/dialect/strictJson.ts"
import type { Dialect } from "../src/http/dialect/Dialect.ts"
import { nativeChat, nativeGenerate } from "../src/http/dialect/native/dialect.ts"
import { openaiChat, openaiCompletions } from "../src/http/dialect/openai/dialect.ts"
import { withPromptSize } from "../src/http/dialect/promptEstimate.ts"

const turns = Array.from({ length: 10 }, (_, i) => ({
  role: i % 2 === 0 ? "user" : "assistant",
  content: "A sentence of ordinary length, as people write them when they talk to a model. ".repeat(3)
}))

const subjects: ReadonlyArray<readonly [name: string, dialect: Dialect, body: JsonObject]> = [
  ["/api/chat", nativeChat, { model: "m", messages: turns, options: { temperature: 0.7, num_predict: 256 } }],
  ["/api/generate", nativeGenerate, { model: "m", prompt: "Hello".repeat(400), options: { seed: 1 } }],
  ["/v1/chat/completions", openaiChat, { model: "m", messages: turns, temperature: 0.7, max_tokens: 256 }],
  ["/v1/completions", openaiCompletions, { model: "m", prompt: "Hello".repeat(400), max_tokens: 256 }]
]

const bounds = { numPredictCap: 65_536, lowersOutput: false, numCtxCap: undefined }

const decode = (dialect: Dialect, bytes: Uint8Array): InferenceRequest =>
  withPromptSize(Result.getOrThrow(dialect.decode(Result.getOrThrow(parseBody(bytes)), bounds)))

const runs = 5

const measure = (name: string, times: number, work: () => void): void => {
  const measured = Array.from({ length: runs + 1 }, () => {
    const before = process.cpuUsage()
    for (let i = 0; i < times; i += 1) work()
    const { user, system } = process.cpuUsage(before)
    return (user + system) / times
  })
  const figures = measured.slice(1).map((us) => us.toFixed(2).padStart(8))
  process.stdout.write(`${name.padEnd(44)}${figures.join("")} µs\n`)
}

const frame: Frame = { createdAt: "2026-08-21T10:00:00.123456789Z", text: " token", done: false }
const chunk = Array.from({ length: 4 }, () => frame)

for (const [path, dialect, body] of subjects) {
  const bytes = Buffer.from(JSON.stringify(body))
  measure(`${path}: decode ${bytes.length} bytes`, 5000, () => void decode(dialect, bytes))
}
for (const [path, dialect, body] of subjects) {
  const encoder = dialect.encoder(decode(dialect, Buffer.from(JSON.stringify(body))), {
    requestId: "r",
    seal: (ids) => ids
  })
  measure(`${path}: encode a read of one frame`, 50_000, () => void encoder.frames([frame]))
  measure(`${path}: encode a read of 4 frames`, 20_000, () => void encoder.frames(chunk))
}
