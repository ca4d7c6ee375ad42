/**
 * What it costs to check the vectors of an answer: counting the numbers against parsing them. `node bench/embeddings.ts`:
 * µs of CPU for 64 vectors of 384 numbers, five runs after a warm-up.
 */
import { countNumbers } from "../src/backend/ollama/countNumbers.ts"

const vectors = 64
const numbers = Array.from({ length: 384 }, (_, n) => Math.fround(Math.sin(n * 7 + 0.3) / 16))
const json = Buffer.from(JSON.stringify(numbers))

const parse = (bytes: Buffer): number | undefined => {
  const value: unknown = JSON.parse(bytes.toString("latin1"))
  return Array.isArray(value) && value.every((item) => Number.isFinite(Math.fround(item)))
    ? value.length
    : undefined
}

const runs = 5
const rounds = 200
for (const [name, count] of [["countNumbers", countNumbers] as const, ["JSON.parse", parse] as const]) {
  const measured = Array.from({ length: runs + 1 }, () => {
    const before = process.cpuUsage()
    for (let i = 0; i < rounds * vectors; i += 1) {
      if (count(json) !== numbers.length) throw new Error("miscounted")
    }
    const { system, user } = process.cpuUsage(before)
    return (user + system) / rounds
  })
  const figures = measured.slice(1).map((us) => us.toFixed(0).padStart(6))
  process.stdout.write(`${name.padEnd(14)}${figures.join("")} µs\n`)
}
