/** `npm run check`: types, lint, format and the quick suites at once, each with its seconds. Exit 1 when one fails. */
import { spawn } from "node:child_process"

const slow = "test/{deploy,edge,faults,fuzz,types}/**"

const parts: Readonly<Record<string, ReadonlyArray<string>>> = {
  types: ["npm", "run", "--silent", "types"],
  lint: ["oxlint"],
  format: ["oxfmt", "--check"],
  tests: ["vitest", "run", "--maxWorkers=3", "--exclude", slow, ...process.argv.slice(2)]
}

const began = performance.now()

const run = ([name, [command = "", ...args]]: readonly [string, ReadonlyArray<string>]) =>
  new Promise<string>((resolve) => {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] })
    const lines: Array<Buffer> = []
    const keep = (bytes: Buffer) => void (name === "tests" ? process.stdout.write(bytes) : lines.push(bytes))
    child.stdout.on("data", keep)
    child.stderr.on("data", keep)
    child.once("error", (error) => lines.push(Buffer.from(error.message)))
    child.once("close", (code) => {
      const failed = code !== 0
      if (failed) process.exitCode = 1
      if (lines.length > 0) process.stdout.write(`\n${name}:\n${Buffer.concat(lines).toString()}\n`)
      const seconds = ((performance.now() - began) / 1000).toFixed(1)
      resolve(`${name}: ${failed ? "failed" : "passed"} after ${seconds} s`)
    })
  })

const results = await Promise.all(Object.entries(parts).map(run))
process.stdout.write(`\n${results.join("\n")}\n`)
