#!/usr/bin/env node
// Plain JavaScript, because the Node that runs this file may be too old for TypeScript. `npx` runs it with the Node that this
// project pins and that `npm ci` has installed as a package.
import module from "node:module"
import { join } from "node:path"

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)

if (major < 24 || (major === 24 && minor < 14)) {
  const wanted = "tollgate needs Node 24.14 or later"
  console.error(`${wanted} (this is ${process.versions.node}): run "npm ci", then "npx tollgate"`)
  process.exit(1)
}

const root = join(import.meta.dirname, "..")

/**
 * Node caches compiled code here, which saves a third of the time of a short command. When the folder cannot be written, as
 * in the image, there is no cache. Node's default folder is not used: others could write code into it. Node itself uses
 * NODE_COMPILE_CACHE when it is set.
 */
module.enableCompileCache(join(root, "node_modules/.cache/tollgate"))
const { entry } = await import("../build/built.js")
await import(entry("cli"))
