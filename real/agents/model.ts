/**
 * A model that works as a coding agent's model would: it writes a file by the agent's own tool, then it says that it is done.
 *
 * Each agent has other tools, so the tool is found by its fields: one with a path and a text, else a shell.
 */
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import type { Behaviour } from "../../test/support/Behaviour.ts"
import { fake, type Recorded } from "../../test/support/FakeBackend.ts"

export const written = { file: "note.txt", text: "written by the model" } as const
/** what the model says when the file is there */
export const saidAtTheEnd = "The file is written."

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)
const listOf = (value: Json | undefined): ReadonlyArray<JsonObject> =>
  Array.isArray(value) ? value.filter(isObject) : []

interface Tool {
  readonly name: string
  readonly properties: JsonObject
  readonly required: ReadonlyArray<Json>
}

const toolsOf = (body: JsonObject | undefined): ReadonlyArray<Tool> =>
  listOf(body?.["tools"]).flatMap((tool) => {
    const described = tool["function"]
    const parameters = isObject(described) ? described["parameters"] : undefined
    const properties = isObject(parameters) ? parameters["properties"] : undefined
    const required = isObject(parameters) ? parameters["required"] : undefined
    return isObject(described) && isObject(properties)
      ? [{ name: String(described["name"]), properties, required: Array.isArray(required) ? required : [] }]
      : []
  })

const paths = ["file_path", "filePath", "filepath", "absolute_path", "path"]
const texts = ["content", "contents", "file_text"]
const shells = ["command", "cmd", "commands"]

/** What a field wants that says nothing about the file. */
const filler = (schema: Json | undefined): Json => {
  const type = isObject(schema) ? schema["type"] : undefined
  const choices = isObject(schema) ? schema["enum"] : undefined
  if (Array.isArray(choices)) return choices[0] ?? ""
  if (type === "boolean") return false
  if (type === "number" || type === "integer") return 10_000
  return type === "array" ? [] : type === "object" ? {} : "writes the file"
}

const valueOf = (folder: string, name: string, schema: Json | undefined): Json => {
  if (paths.includes(name)) return `${folder}/${written.file}`
  if (texts.includes(name)) return written.text
  if (!shells.includes(name)) return filler(schema)
  const line = `printf '%s' '${written.text}' > ${folder}/${written.file}`
  const isList = isObject(schema) && schema["type"] === "array"
  return isList ? (name === "commands" ? [line] : ["sh", "-c", line]) : line
}

const has = (tool: Tool, names: ReadonlyArray<string>) => names.some((name) => name in tool.properties)

/** Calls the agent's tool that writes a file in `folder`. */
const callOf = (folder: string, body: JsonObject | undefined): JsonObject | undefined => {
  const tools = toolsOf(body)
  const tool =
    tools.find((one) => has(one, paths) && has(one, texts)) ?? tools.find((one) => has(one, shells))
  if (tool === undefined) return undefined
  const used = Object.entries(tool.properties).filter(
    ([name]) => tool.required.includes(name) || [...paths, ...texts, ...shells].includes(name)
  )
  return fake.toolCall(
    tool.name,
    Object.fromEntries(used.map(([name, schema]) => [name, valueOf(folder, name, schema)])),
    "call_1"
  )
}

/** What the model does with a call of an agent that works in `folder`. */
export const writesFile = (folder: string, { body }: Recorded): Behaviour => {
  const answered = listOf(body?.["messages"]).some(({ role }) => role === "tool")
  const call = answered ? undefined : callOf(folder, body)
  return { does: "stream", lines: [call ?? fake.chat(saidAtTheEnd), fake.done()] }
}
