// `npm start`: runs the build of the sources as they are now, and makes it first when there is none. Where none can be made
// (esbuild is not installed, or the folder cannot be written), it runs the sources.
import { setFlagsFromString } from "node:v8"

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
if (major < 24 || (major === 24 && minor < 14)) {
  process.stderr.write(
    `tollgate: it needs Node 24.14 or later (this is ${process.versions.node}): run "npm start", which has its own\n`
  )
  process.exit(1)
}

// After the check: an older Node cannot run it.
const { entry } = await import("./built.js")

// V8 takes the limit of its heap only at the start of a process. So this process becomes one with the limit that fits its memory.
if (!`${process.execArgv} ${process.env.NODE_OPTIONS ?? ""}`.includes("--max-old-space-size")) {
  const { flagsOf, planOf } = await import("../src/memory/plan.ts")
  const plan = planOf(Number(process.env.MEMORY_MAX_BYTES) || undefined)
  const args = [...flagsOf(plan), ...process.execArgv, ...process.argv.slice(1)]
  process.execve(process.execPath, [process.execPath, ...args], process.env)
}

// Loading leaves garbage for which V8 would make room that an idle gateway then keeps. `src/startup/v8Flags.ts` sets it back.
setFlagsFromString("--semi-space-growth-factor=1")

await import(
  entry("main", (reason) =>
    process.stderr.write(
      `tollgate: not built, so it runs from its sources and takes more memory: ${reason}\n`
    )
  )
)
