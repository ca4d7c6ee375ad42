/**
 * The paying neighbour of an attack, in a process of its own: small requests at an even pace from an address of its own,
 * until `SECONDS` are over. Prints what it met as one JSON line.
 */
import { Pool } from "undici"

const env = (name: string): string => process.env[name] ?? ""
const keys = env("KEYS").split(",")
const pauseMs = Number(env("PAUSE_MS"))
const pool = new Pool(env("URL"), {
  connections: 32,
  localAddress: env("ADDRESS"),
  headersTimeout: 20_000,
  bodyTimeout: 20_000
})
const path = env("REQUEST_PATH")
const body = JSON.stringify(
  path === "/api/chat"
    ? { model: "short", stream: false, messages: [{ role: "user", content: "Hello" }] }
    : { model: "short", input: ["Hello"] }
)
const times: Array<number> = []
const statuses: Record<string, number> = {}
const open = new Set<Promise<void>>()

const once = async (key: string): Promise<void> => {
  const began = performance.now()
  let status = "lost"
  try {
    const headers = { "content-type": "application/json", authorization: `Bearer ${key}` }
    const response = await pool.request({ method: "POST", path, headers, body })
    await response.body.dump()
    status = String(response.statusCode)
  } catch {
    // Counted as lost: it had no answer.
  }
  times.push(performance.now() - began)
  statuses[status] = (statuses[status] ?? 0) + 1
}

const until = performance.now() + Number(env("SECONDS")) * 1000
for (let n = 0; performance.now() < until; n += 1) {
  if (open.size < 200) {
    const request = once(keys[n % keys.length] ?? "").finally(() => open.delete(request))
    open.add(request)
  }
  await new Promise((resolve) => setTimeout(resolve, pauseMs))
}
await Promise.all(open)
const sorted = times.toSorted((a, b) => a - b)
const quantile = (share: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
const figures = {
  requests: times.length,
  p50: quantile(0.5),
  p95: quantile(0.95),
  p99: quantile(0.99),
  most: quantile(1),
  statuses
}
process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit(0))
