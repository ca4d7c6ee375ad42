/** The files of a client beside what is there already. */
import { Option, Schema } from "effect"
import type { JsonObject } from "../../src/domain/Inference.ts"
import type { Settings } from "./Client.ts"
import { isObject } from "../../src/domain/json.ts"
import { freshText, jsonText } from "./texts.ts"

/** What is ours wins; members of others stay. */
const merge = (there: JsonObject, ours: JsonObject): JsonObject => ({
  ...there,
  ...Object.fromEntries(
    Object.entries(ours).map(([name, value]) => {
      const old = there[name]
      return [name, isObject(old) && isObject(value) ? merge(old, value) : value]
    })
  )
})

const readJson = Schema.decodeOption(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Json)))

/** The text of the file when it has `there` now. None: that is not plain JSON, so nothing can be merged into it. */
export const textOf = (file: Settings, there = ""): Option.Option<string> => {
  const { content } = file
  if (typeof content === "string" || there.trim() === "") return Option.some(freshText(file))
  return Option.map(readJson(there), (found) => jsonText(merge(found, content)))
}

/** The lines that go (`-`) and come (`+`) between what the first and the last lines have in common. */
export const difference = (before: string, after: string): ReadonlyArray<string> => {
  const [old, next] = [before, after].map((text) => (text === "" ? [] : text.replace(/\n$/, "").split("\n")))
  const [a = [], b = []] = [old, next]
  let start = 0
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1
  let end = 0
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1
  return [
    ...a.slice(start, a.length - end).map((line) => `- ${line}`),
    ...b.slice(start, b.length - end).map((line) => `+ ${line}`)
  ]
}
