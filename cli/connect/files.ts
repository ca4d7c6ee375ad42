/** The files that `connect` makes for a client: the environment as a script of the shell, and its settings. */
import * as path from "node:path"
import { Option, Schema } from "effect"
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { shellWord } from "../terminal.ts"
import type { Client, Facts, Settings } from "./Client.ts"

/** A value of the environment in the shell. `~` would stay one within quotes. */
const shellValue = (value: string): string =>
  value === "$TOLLGATE_KEY"
    ? '"$TOLLGATE_KEY"'
    : value.startsWith("~/")
      ? `"$HOME/${value.slice(2)}"`
      : shellWord(value)

const fromRoot = (file: string): string => (file.startsWith("~/") ? file : path.resolve(file))

/** The key comes from a file or from the environment, and is never part of what is printed. */
const script = (client: Client, facts: Facts, keyFile: string | undefined): string =>
  [
    keyFile === undefined
      ? ': "${TOLLGATE_KEY:?set it to the key of the gateway}"'
      : `TOLLGATE_KEY="$(cat ${shellValue(fromRoot(keyFile))})"`,
    "export TOLLGATE_KEY",
    ...Object.entries(client.environment?.(facts) ?? {}).map(
      ([name, value]) => `export ${name}=${shellValue(value)}`
    )
  ].join("\n") + "\n"

export const scriptPath = (client: Client): string => `~/.config/tollgate/${client.name}.sh`

/** The script first. */
export const filesOf = (client: Client, facts: Facts, keyFile?: string): ReadonlyArray<Settings> => [
  { path: scriptPath(client), content: script(client, facts, keyFile) },
  ...Object.entries(client.settings?.(facts) ?? {}).map(([path, content]) => ({ path, content }))
]

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

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

const jsonText = (value: JsonObject): string => `${JSON.stringify(value, null, 2)}\n`

const readJson = Schema.decodeOption(Schema.fromJsonString(Schema.Record(Schema.String, Schema.Json)))

/** The text of the file when it has `there` now. None: that is not plain JSON, so nothing can be merged into it. */
export const textOf = ({ content }: Settings, there = ""): Option.Option<string> => {
  if (typeof content === "string") return Option.some(content)
  if (there.trim() === "") return Option.some(jsonText(content))
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

/** What the user types. */
export const commandOf = (client: Client, facts: Facts): string =>
  [`. ${scriptPath(client)}`, ...(client.run === undefined ? [] : [client.run(facts)])].join(" && ")

/** The text of a file that is not there yet. */
export const freshText = (file: Settings): string => Option.getOrElse(textOf(file), () => "")

/** All files, as text. */
export const printed = (client: Client, facts: Facts, keyFile?: string): string =>
  [
    ...filesOf(client, facts, keyFile).flatMap((file) => [`# ${file.path}`, freshText(file)]),
    `# then: ${commandOf(client, facts)}`
  ].join("\n")
