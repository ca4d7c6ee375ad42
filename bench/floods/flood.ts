/** An open loop of bad keys: `RATE` a second for `SECONDS`, answered or not; statuses as one JSON line. */
import { Pool } from "undici"
import { mintKey } from "../../src/domain/Key.ts"

const env = (name: string): string => process.env[name] ?? ""
const perMs = Number(env("RATE")) / 1000
const pool = new Pool(env("URL"), { connections: 256 })
const body = JSON.stringify({ model: "short", messages: [{ role: "user", content: "Hello" }] })
const statuses = new Map<string, number>()
const count = (status: string) => void statuses.set(status, (statuses.get(status) ?? 0) + 1)

const kinds: Readonly<Record<string, () => string>> = {
  tails: () => env("PREFIX") + mintKey("tg_").slice(-32),
  prefixes: () => mintKey("tg_"),
  junk: () => Math.random().toString(36).repeat(3)
}
const token = kinds[env("KIND")] ?? (() => "junk")

/** Beyond this the gateway is slower than the flood: what is not sent is counted. */
const maxUnanswered = 4000
let unanswered = 0
const once = async (): Promise<void> => {
  if (unanswered >= maxUnanswered) return count("not sent")
  unanswered += 1
  try {
    const response = await pool.request({
      method: "POST",
      path: "/api/chat",
      headers: { "content-type": "application/json", authorization: `Bearer ${token()}` },
      body
    })
    await response.body.dump()
    count(String(response.statusCode))
  } catch (error) {
    count(error instanceof Error ? error.name : "error")
  }
  unanswered -= 1
}

const started = performance.now()
const until = started + Number(env("SECONDS")) * 1000
let sent = 0
const timer = setInterval(() => {
  const now = performance.now()
  for (const due = (Math.min(now, until) - started) * perMs; sent < due; sent += 1) void once()
  if (now < until) return
  clearInterval(timer)
  process.stdout.write(`${JSON.stringify({ sent, statuses: Object.fromEntries(statuses) })}\n`)
  process.exit(0)
}, 2)
