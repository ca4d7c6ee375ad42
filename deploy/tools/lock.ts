/**
 * `npm run lock`, after each `npm install`: takes the `engines` that the Node of the machine need not fulfil out of the lock
 * file. It only runs npm. Everything else runs on the Node that this project pins, but npm compares with its own, and
 * `npm ci` on Node 20 printed 55 lines of warnings.
 */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { Schema } from "effect"

const root = path.resolve(import.meta.dirname, "../..")
const lockFile = path.join(root, "package-lock.json")

/** Of `package.json`: the oldest Node that may run npm here. */
export const oldestNode = 20

/** Whether the range of an `engines` field admits `major`.0.0. */
const admits = (range: string, major: number): boolean =>
  range.split("||").some((part) => {
    const [, operator = "", version = "", rest = ""] =
      /^(>=|\^|)\s*(\d+)((?:\.\d+)*)$/.exec(part.trim()) ?? []
    const first = Number(version)
    const isExact = /[1-9]/.test(rest)
    if (operator === ">=") return major > first || (major === first && !isExact)
    return operator === "^" && major === first && !isExact
  })

const Lock = Schema.fromJsonString(
  Schema.StructWithRest(
    Schema.Struct({
      packages: Schema.Record(Schema.String, Schema.Record(Schema.String, Schema.Json))
    }),
    [Schema.Record(Schema.String, Schema.Json)]
  )
)
const Engines = Schema.Struct({ node: Schema.String })
const isEngines = Schema.is(Engines)

/** Packages that do not admit the oldest Node. */
export const findStrict = (text: string): ReadonlyArray<string> =>
  Object.entries(Schema.decodeSync(Lock)(text).packages).flatMap(([name, { engines }]) =>
    isEngines(engines) && !admits(engines.node, oldestNode) ? [name] : []
  )

const write = () => {
  const text = readFileSync(lockFile, "utf8")
  const strict = new Set(findStrict(text))
  const lock = Schema.decodeSync(Lock)(text)
  const packages = Object.fromEntries(
    Object.entries(lock.packages).map(([name, entry]) => [
      name,
      strict.has(name)
        ? Object.fromEntries(Object.entries(entry).filter(([field]) => field !== "engines"))
        : entry
    ])
  )
  writeFileSync(lockFile, `${JSON.stringify({ ...lock, packages }, null, 2)}\n`)
  process.stdout.write(`engines of ${strict.size} packages removed\n`)
}

if (import.meta.main) write()
