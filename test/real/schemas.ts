/**
 * Random schemas against a real model server: those that are admitted are asked of it, and it has to answer each with 200
 * and be the same process afterwards. `node test/real/schemas.ts <url> [count] [seed] [model]`
 */
import { Result } from "effect"
import { admitSchema } from "../../src/http/dialect/schema/admit.ts"
import { Random } from "../fuzz/Random.ts"
import { RandomSchemas } from "../support/randomSchemas.ts"

const [url = "http://127.0.0.1:11434", count = "10000", seed = "1", model = "plain"] = process.argv.slice(2)

const random = new Random(Number(seed))
const schemas = new RandomSchemas(random)

const ask = async (format: unknown): Promise<string> => {
  try {
    const response = await fetch(`${url}/api/generate`, {
      method: "POST",
      body: JSON.stringify({
        model,
        prompt: "x",
        stream: false,
        format,
        options: { num_predict: 1 + random.int(6), seed: random.int(1000) }
      }),
      signal: AbortSignal.timeout(120_000)
    })
    const text = await response.text()
    return response.status === 200 ? "well" : `${response.status} ${text.slice(0, 200)}`
  } catch (error) {
    return `lost: ${String(error)}`
  }
}

const [admitted, refused] = [{ plain: 0, relaxed: 0 }, new Map<string, number>()]
let harmed = 0
let slowest = 0
const began = performance.now()
for (let i = 0; i < Number(count); i += 1) {
  const schema = schemas.next()
  const result = admitSchema(schema, "format")
  if (Result.isFailure(result)) {
    const why = result.failure.replace(/^[^:]*?([^.: ]*): /, "$1: ")
    refused.set(why, (refused.get(why) ?? 0) + 1)
    continue
  }
  admitted[result.success.relaxed.length === 0 ? "plain" : "relaxed"] += 1
  const at = performance.now()
  const answer = await ask(result.success.schema)
  slowest = Math.max(slowest, performance.now() - at)
  if (answer !== "well") {
    harmed += 1
    process.stdout.write(
      `HARM ${i}: ${answer}\n${JSON.stringify(schema)}\n-> ${JSON.stringify(result.success.schema)}\n`
    )
    if (harmed > 10) break
  }
  if (i % 1000 === 0) process.stdout.write(`${i} ${((performance.now() - began) / 1000).toFixed(0)} s\n`)
}
process.stdout.write(
  `${JSON.stringify({ count, seed, admitted, harmed, slowestMs: Math.round(slowest), seconds: Math.round((performance.now() - began) / 1000) })}\n`
)
for (const [why, times] of [...refused].sort((a, b) => b[1] - a[1]).slice(0, 25))
  process.stdout.write(`${times} ${why}\n`)
