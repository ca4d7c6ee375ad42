/** Paying clients: `KEYS`, each a small request every 100 ms for `SECONDS`; latencies in ms as one JSON line. */
import { Pool } from "undici"

const env = (name: string): string => process.env[name] ?? ""
const keys = env("KEYS").split(",")
const pool = new Pool(env("URL"), { connections: 64 })
const body = JSON.stringify({
  model: "short",
  stream: false,
  messages: [{ role: "user", content: "Hello" }]
})
const times: Array<number> = []
const statuses: Record<string, number> = {}
const open = new Set<Promise<void>>()

const once = async (key: string): Promise<void> => {
  const started = performance.now()
  const headers = { "content-type": "application/json", authorization: `Bearer ${key}` }
  const response = await pool.request({ method: "POST", path: "/api/chat", headers, body })
  await response.body.dump()
  times.push(performance.now() - started)
  statuses[response.statusCode] = (statuses[response.statusCode] ?? 0) + 1
}
const start = (key: string) => {
  const request = once(key).finally(() => open.delete(request))
  open.add(request)
}

const at = (share: number): number =>
  times.toSorted((a, b) => a - b)[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0

const until = performance.now() + Number(env("SECONDS")) * 1000
if (env("AT_ONCE") === "1") for (const key of keys) start(key)
else {
  for (let n = 0; performance.now() < until; n += 1) {
    start(keys[n % keys.length] ?? "")
    await new Promise((resolve) => setTimeout(resolve, 100 / keys.length))
  }
}
await Promise.all(open)
process.stdout.write(
  `${JSON.stringify({ requests: times.length, p50: at(0.5), p99: at(0.99), most: at(1), statuses })}\n`
)
process.exit(0)
