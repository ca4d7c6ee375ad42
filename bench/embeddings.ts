/**
 * What it costs to check the vectors of an answer: counting the numbers, 16 bytes at a time and byte by byte, against parsing
 * them; and reading each of them, for base64. `node bench/embeddings.ts`: µs of CPU for 64 vectors of 384 numbers, five runs after a warm-up. No two vectors
 * are the same, so that the processor cannot predict the lengths of their numbers. The numbers are float32 as Ollama writes
 * them, and float64.
 */
import { countNumbers } from "../src/backend/ollama/countNumbers.ts"
import { FloatReader } from "../src/domain/FloatReader.ts"
import { countSimpleNumbers } from "../src/backend/ollama/simpleNumbers.ts"

const length = 384

/** The shortest text that is the same float32. */
const shortest = (number: number): number => {
  const same = Array.from({ length: 9 }, (_, n) => Number(number.toPrecision(n + 1)))
  return same.find((text) => Math.fround(text) === Math.fround(number)) ?? number
}
const vectorsOf = (format: (number: number) => number): ReadonlyArray<Buffer> =>
  Array.from({ length: 64 }, (_, v) =>
    Buffer.from(
      JSON.stringify(Array.from({ length }, (_, n) => format(Math.sin((v * length + n) * 7 + 0.3) / 16)))
    )
  )
const kinds = { float32: vectorsOf(shortest), float64: vectorsOf((number) => number) }

const parse = (bytes: Buffer): number | undefined => {
  const value: unknown = JSON.parse(bytes.toString("latin1"))
  return Array.isArray(value) && value.every((item) => Number.isFinite(Math.fround(item)))
    ? value.length
    : undefined
}

const floats = new Float32Array(length)
const read = (bytes: Buffer): number => new FloatReader(bytes).readInto(floats)

const runs = 5
const rounds = 200
const counters = { countSimpleNumbers, countNumbers, FloatReader: read, "JSON.parse": parse }
for (const [kind, vectors] of Object.entries(kinds)) {
  for (const [name, count] of Object.entries(counters)) {
    const measured = Array.from({ length: runs + 1 }, () => {
      const before = process.cpuUsage()
      for (let i = 0; i < rounds; i += 1) {
        for (const json of vectors) if (count(json) !== length) throw new Error("miscounted")
      }
      const { system, user } = process.cpuUsage(before)
      return (user + system) / rounds
    })
    const figures = measured.slice(1).map((us) => us.toFixed(0).padStart(6))
    process.stdout.write(`${kind} ${name.padEnd(20)}${figures.join("")} µs\n`)
  }
}
