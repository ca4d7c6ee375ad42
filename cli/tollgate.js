#!/usr/bin/env node
// Plain JavaScript, because the Node that runs this file may be too old for TypeScript. Then it starts the Node that this
// project pins and that `npm ci` has installed as a package.
import { spawn } from "node:child_process"
import module, { createRequire } from "node:module"
import { constants } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const main = join(dirname(fileURLToPath(import.meta.url)), "main.ts")
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)

/** Node 24.14 or later runs TypeScript. */
const recent = major > 24 || (major === 24 && minor >= 14)

/**
 * Node caches compiled code here, which saves a third of the time of a short command. When the folder cannot be written, as
 * in the image, there is no cache. Node's default folder is not used: others could write code into it.
 */
const compiled = join(dirname(main), "../node_modules/.cache/tollgate")

const pinnedNode = () => {
  const name = `node-${process.platform}-${process.arch}`
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), "bin/node")
  } catch {
    console.error(
      `tollgate needs Node 24.14 or later (this is ${process.versions.node}), and the package ${name} that brings it is not installed: run npm ci`
    )
    process.exit(1)
  }
}

if (recent) {
  // Node itself uses NODE_COMPILE_CACHE when it is set.
  module.enableCompileCache(compiled)
  await import(main)
} else {
  const child = spawn(pinnedNode(), [main, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { NODE_COMPILE_CACHE: compiled, ...process.env }
  })
  const signals = ["SIGTERM", "SIGHUP", "SIGINT", "SIGUSR2"]
  for (const signal of signals)
    process.on(signal, () => {
      // The terminal sends Ctrl-C to the child too. A second one would end it at once.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal)
    })
  child.on("error", (error) => {
    console.error(`tollgate: the pinned Node cannot be started (${error.code})`)
    process.exit(1)
  })
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)))
}
