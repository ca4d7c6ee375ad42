#!/usr/bin/env node
// Plain JavaScript, because the Node that runs this may be too old for the rest: then the Node this project pins,
// installed as a package by `npm ci`, takes over.
import { spawn } from "node:child_process"
import module, { createRequire } from "node:module"
import { constants } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const main = join(dirname(fileURLToPath(import.meta.url)), "main.ts")
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)

/** 24.14 or later runs TypeScript as it is */
const recent = major > 24 || (major === 24 && minor >= 14)

/**
 * What was compiled once need not be again: a third of a short command's time. Where this folder cannot be written, as in
 * the image, Node does without; a folder that others may write into, such as its default, could feed us their code.
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
  // NODE_COMPILE_CACHE, where it is set, has been heeded already.
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
      // A terminal's Ctrl-C reaches the child by itself; a second one would mean "now".
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal)
    })
  child.on("error", (error) => {
    console.error(`tollgate: the pinned Node cannot be started (${error.code})`)
    process.exit(1)
  })
  child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)))
}
