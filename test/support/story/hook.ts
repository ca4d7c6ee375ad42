/**
 * `node --import` this before a gateway: SIGUSR2 begins to record the functions of `src` that are called, the next one ends it
 * and writes them to the file that `STORY` names.
 */
import { readFileSync, renameSync, writeFileSync } from "node:fs"
import { registerHooks, stripTypeScriptTypes } from "node:module"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { instrument, type Told } from "./instrument.ts"

const file = process.env["STORY"] ?? ""
const src = path.join(path.dirname(path.resolve(process.argv[1] ?? "")), path.sep)
const functions: Array<Told & { readonly file: string }> = []
let calls: Array<number> | undefined

const call = "__tollgateStory"
Object.assign(globalThis, { [call]: (index: number) => void calls?.push(index) })

registerHooks({
  load: (url, context, next) => {
    const at = url.startsWith("file:") ? fileURLToPath(url) : ""
    if (!at.startsWith(src) || !at.endsWith(".ts")) return next(url, context)
    const { code, told } = instrument(stripTypeScriptTypes(readFileSync(at, "utf8")), call, functions.length)
    for (const one of told) functions.push({ ...one, file: path.relative(src, at) })
    return { format: "module", source: code, shortCircuit: true }
  }
})

/** Whole or not there at all, because the reader waits for it. */
const write = (value: unknown) => {
  writeFileSync(`${file}.part`, JSON.stringify(value))
  renameSync(`${file}.part`, file)
}

process.on("SIGUSR2", () => {
  const recorded = calls
  calls = recorded === undefined ? [] : undefined
  write(recorded === undefined ? "recording" : recorded.map((index) => functions[index]))
})
