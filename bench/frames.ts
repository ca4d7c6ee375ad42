/**
 * What a frame costs: the hand-written decoder against a Schema decode of the same shape, on content frames as a
 * stream brings them. `node bench/frames.ts`. The decoder in use is the first; the goal is 1.5 µs per frame.
 */
import { Schema } from "effect"
import { decodeFrame } from "../src/backend/ollama/decodeFrame.ts"
import { LineSplitter } from "../src/backend/ollama/frames.ts"

const Count = Schema.optionalKey(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)))
const Line = Schema.fromJsonString(
  Schema.Struct({
    created_at: Schema.String,
    message: Schema.Struct({
      content: Schema.String,
      thinking: Schema.optionalKey(Schema.String),
      tool_calls: Schema.optionalKey(
        Schema.Array(
          Schema.Struct({
            id: Schema.optionalKey(Schema.String),
            function: Schema.Struct({
              name: Schema.String,
              arguments: Schema.Record(Schema.String, Schema.Unknown)
            })
          })
        )
      )
    }),
    done: Schema.Boolean,
    done_reason: Schema.optionalKey(Schema.String),
    prompt_eval_count: Count,
    eval_count: Count
  })
)
const bySchema = Schema.decodeUnknownResult(Line)

const line = JSON.stringify({
  model: "llama3.2:latest",
  created_at: "2026-08-21T10:00:00.123456789Z",
  message: { role: "assistant", content: " token" },
  done: false
})
const chunk = Buffer.from(`${line}\n`.repeat(100))

const subjects: ReadonlyArray<readonly [string, (line: string) => unknown]> = [
  ["decodeFrame", (text) => decodeFrame("chat", text)],
  ["Schema", (text) => bySchema(text)],
  ["JSON.parse alone", (text) => JSON.parse(text)]
]

const rounds = 2000
const runs = 5
for (const [name, decode] of subjects) {
  const measured = Array.from({ length: runs + 1 }, () => {
    const started = performance.now()
    for (let round = 0; round < rounds; round += 1) {
      const lines = new LineSplitter(8_388_608).push(chunk)
      for (const text of lines ?? []) decode(text)
    }
    return ((performance.now() - started) * 1000) / (rounds * 100)
  })
  // The first run warms the compiler up.
  const figures = measured.slice(1).map((us) => us.toFixed(2))
  process.stdout.write(`${name.padEnd(18)} ${figures.join("  ")} µs per frame, splitting included\n`)
}
