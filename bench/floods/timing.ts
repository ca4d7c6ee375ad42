/**
 * How long a 401 takes for each reason, one after the other in turn: `TOKENS` is `name=prefix` a comma, and a prefix of
 * nothing is a new one every time. Milliseconds as one JSON line.
 */
import { Pool } from "undici"
import { mintKey } from "../../src/domain/Key.ts"

const env = (name: string): string => process.env[name] ?? ""
const reasons = env("TOKENS")
  .split(",")
  .map((pair) => pair.split("="))
  .map(([name = "", prefix = ""]) => ({ name, prefix, times: new Array<number>() }))
const pool = new Pool(env("URL"), { connections: 1 })
const body = JSON.stringify({ model: "short", messages: [] })

const ask = async (key: string): Promise<number> => {
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` }
  const started = performance.now()
  const response = await pool.request({ method: "POST", path: "/api/chat", headers, body })
  await response.body.dump()
  if (response.statusCode !== 401) throw new Error(`answered ${response.statusCode}`)
  return performance.now() - started
}

for (let round = 0; round < Number(env("ROUNDS")); round += 1) {
  for (const { prefix, times } of reasons) {
    const minted = mintKey("tg_")
    times.push(await ask(prefix === "" ? minted : prefix + minted.slice(12)))
    // Two thirds of a worker's time are not for verifies against nothing: this waits until it may run one again.
    await new Promise((resolve) => setTimeout(resolve, 40))
  }
}
process.stdout.write(
  `${JSON.stringify(
    reasons.map(({ name, times }) => {
      const sorted = times.toSorted((a, b) => a - b)
      const mean = times.reduce((sum, ms) => sum + ms, 0) / times.length
      const at = (share: number) => sorted[Math.floor(sorted.length * share)] ?? 0
      return { name, mean, p10: at(0.1), p50: at(0.5), p90: at(0.9) }
    })
  )}\n`
)
process.exit(0)
