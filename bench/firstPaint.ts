/**
 * How soon the playground is on the screen: `npx node bench/firstPaint.ts`. It starts the gateway in embedded mode with the
 * demo model and opens the page in one Chromium (`CHROMIUM`, or Debian's), ten times on loopback, after one that is not
 * counted. The times are the browser's own, from the start of the navigation. "Opened" is from another site: because of
 * `Cross-Origin-Opener-Policy`, Chromium then starts a process for the page. "Loaded again" has one already.
 */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { Effect } from "effect"
import { chromium } from "playwright-core"
import { freePort } from "../test/support/servers/processes.ts"

const loads = 10
const port = await Effect.runPromise(freePort)
const url = `http://127.0.0.1:${port}`
const folder = await mkdtemp(path.join(tmpdir(), "tollgate-paint-"))
const gateway = spawn(process.execPath, [path.resolve(import.meta.dirname, "../src/main.ts")], {
  env: {
    PATH: process.env["PATH"],
    PORT: String(port),
    DATA_DIR: path.join(folder, "data"),
    LOG_LEVEL: "error"
  },
  stdio: ["ignore", "ignore", "inherit"]
})
const gone = once(gateway, "exit")

const ready = async (): Promise<void> => {
  for (;;) {
    const status = await fetch(`${url}/readyz`).then(
      (answer) => answer.status,
      () => 0
    )
    if (status === 200) return
    if (gateway.exitCode !== null) throw new Error("the gateway ended instead of starting")
    await sleep(100)
  }
}

interface Times {
  readonly received: number
  readonly parsed: number
  readonly paint: number
}

const measured = `new Promise((resolve) => {
  new PerformanceObserver((list, observer) => {
    const paint = list.getEntriesByName("first-contentful-paint")[0]
    if (paint === undefined) return
    observer.disconnect()
    const { responseEnd, domInteractive } = performance.getEntriesByType("navigation")[0]
    resolve({ received: responseEnd, parsed: domInteractive, paint: paint.startTime })
  }).observe({ type: "paint", buffered: true })
})`

try {
  await ready()
  const browser = await chromium.launch({
    executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
  })
  const page = await browser.newPage({ viewport: { width: 1360, height: 860 } })
  const opened: Array<Times> = []
  const reloaded: Array<Times> = []
  for (let load = 0; load <= loads; load += 1) {
    await page.goto(`${url}/playground`)
    const first = await page.evaluate<Times>(measured)
    await page.reload()
    const second = await page.evaluate<Times>(measured)
    if (load > 0) {
      opened.push(first)
      reloaded.push(second)
    }
    await page.goto("about:blank")
  }
  await browser.close()
  const line = (times: ReadonlyArray<Times>, name: keyof Times): string => {
    const sorted = times.map((time) => time[name]).toSorted((one, other) => one - other)
    const at = (index: number) => (sorted[index] ?? Number.NaN).toFixed(0)
    const median = ((sorted[loads / 2 - 1] ?? Number.NaN) + (sorted[loads / 2] ?? Number.NaN)) / 2
    return `median ${median.toFixed(0)} ms, ${at(0)} to ${at(loads - 1)}`
  }
  for (const [how, times] of [
    ["opened", opened],
    ["loaded again", reloaded]
  ] as const) {
    process.stdout.write(`${how}: whole page received: ${line(times, "received")}\n`)
    process.stdout.write(`${how}: parsed, and its script has run: ${line(times, "parsed")}\n`)
    process.stdout.write(`${how}: first contentful paint: ${line(times, "paint")}\n`)
  }
} finally {
  gateway.kill("SIGTERM")
  await gone
  await rm(folder, { recursive: true, force: true })
}
