/**
 * The load for `SECONDS`, results as one JSON line, times in µs. Without `RATE` a closed loop: `CONNECTIONS` requests in
 * flight. With it an open one: so many a second, whatever becomes of them.
 * For the paced model every frame carries the time it was sent, so its delay is known too. `URL` and `KEY` may be comma
 * lists: requests take them in turn.
 */
import { Pool } from "undici"

const env = (name: string): string => process.env[name] ?? ""
const targets = env("URL")
  .split(",")
  .map((url) => new URL(url))
const keys = env("KEY").split(",")
const connections = Number(env("CONNECTIONS"))
const began = performance.now()
const until = began + Number(env("SECONDS")) * 1000
/** This program is slow while it begins: what it sends then is not timed. */
const timedFrom = began + 1000
const pools = targets.map((target) => new Pool(target.origin, { connections }))
const headers = {
  "content-type": "application/json",
  ...JSON.parse(env("HEADERS") === "" ? "{}" : env("HEADERS"))
}
const firsts: Array<number> = []
const frames: Array<number> = []
const statuses = new Map<number, number>()
const stamp = /@(\d+)@/g

let turn = 0
const once = () =>
  new Promise<void>((resolve) => {
    turn += 1
    const [pool, path] = [pools[turn % pools.length], targets[turn % targets.length]?.pathname ?? "/"]
    const authorization = `Bearer ${keys[turn % keys.length]}`
    const started = performance.now()
    let first = true
    pool?.dispatch(
      { method: "POST", path, headers: { ...headers, authorization }, body: env("BODY") },
      {
        // Without it undici takes the handler for one of its older kind.
        onRequestStart: () => undefined,
        onResponseStart: (_controller, status) => void statuses.set(status, (statuses.get(status) ?? 0) + 1),
        onResponseData: (_controller, chunk) => {
          if (first && started > timedFrom) firsts.push((performance.now() - started) * 1000)
          first = false
          if (started < timedFrom) return
          const now = process.hrtime.bigint()
          for (const match of chunk.toString("latin1").matchAll(stamp))
            frames.push(Number(now - BigInt(match[1] ?? 0)) / 1000)
        },
        onResponseEnd: () => resolve(),
        onResponseError: () => {
          statuses.set(0, (statuses.get(0) ?? 0) + 1)
          resolve()
        }
      }
    )
  })

const at = (values: ReadonlyArray<number>, share: number): number =>
  values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0

let done = 0
const rate = Number(env("RATE"))
const closed = async () => {
  while (performance.now() < until) {
    await once()
    done += 1
  }
}
/** Timers and not a busy loop, which would take the core from the stores: what is due by then is sent at once. */
const open = async () => {
  const running: Array<Promise<void>> = []
  for (let n = 0; ;) {
    const now = performance.now()
    if (now >= until) break
    for (; began + (n * 1000) / rate <= now; n++) running.push(once().then(() => void (done += 1)))
    await new Promise((resolve) => setTimeout(resolve, 0.5))
  }
  await Promise.all(running)
}
await (rate > 0 ? open() : Promise.all(Array.from({ length: connections }, closed)))
const seconds = (performance.now() - began) / 1000
process.stdout.write(
  `${JSON.stringify({
    rps: done / seconds,
    requests: done,
    firstP50: at(firsts, 0.5),
    firstP99: at(firsts, 0.99),
    frameP50: at(frames, 0.5),
    frameP99: at(frames, 0.99),
    frames: frames.length,
    statuses: Object.fromEntries(statuses)
  })}\n`
)
process.exit(0)
