/**
 * Bounds and chooses the tools of a request. Their `parameters` are forwarded unchanged as part of the prompt. A model server
 * that makes a grammar of them (Ollama up to 0.24 does not) works for each level and each value, so both are bounded.
 */
import { Result } from "effect"
import { isDeeperThan, isObject, present } from "../../domain/json.ts"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { DecodedRequest, Json, JsonObject } from "../../domain/Inference.ts"

/** Tools of one request. */
export const maxTools = 128
/** Tools that a client may list, with those that its surface drops. */
export const maxListed = 8 * maxTools
/** Levels of objects and lists in the `parameters` of one tool. */
export const maxToolDepth = 32
/** Values in the `parameters` of one tool, including objects and lists. */
export const maxToolValues = 4096

/** How many values there may still be after `value`. It stops below 0: many keys cost as much to read as to parse. */
const leftAfter = (value: Json, left: number): number => {
  if (left <= 0 || typeof value !== "object" || value === null) return left - 1
  if (isObject(value) && Object.keys(value).length >= left) return -1
  return Object.values(value).reduce<number>((rest, item) => leftAfter(item, rest), left - 1)
}

/** A field of the function of a tool, or null. */
const fieldOf = (tool: Json, field: "name" | "parameters"): Json => {
  const definition = isObject(tool) ? tool["function"] : undefined
  return (isObject(definition) ? definition[field] : undefined) ?? null
}

/** Names have no bound of their own. */
const nameOf = (tool: Json): string => String(fieldOf(tool, "name")).slice(0, 64)

const problemOf = (tool: Json): string | undefined => {
  const parameters = fieldOf(tool, "parameters")
  if (leftAfter(parameters, maxToolValues) < 0) return `expected at most ${maxToolValues} values`
  return isDeeperThan(parameters, maxToolDepth) ? `expected at most ${maxToolDepth} levels` : undefined
}

/** `schemaField` is the surface's name of `parameters`. The tool has its name in a refusal: a surface may have dropped others. */
export const checkTools = (request: DecodedRequest, schemaField: string): Decided<DecodedRequest> => {
  const { tools } = request.body
  if (!Array.isArray(tools)) return Result.succeed(request)
  if (tools.length > maxTools) return refuse(`tools: expected at most ${maxTools}`)
  for (const tool of tools) {
    const problem = problemOf(tool)
    if (problem !== undefined) return refuse(`tools: ${schemaField} of ${nameOf(tool)}: ${problem}`)
  }
  return Result.succeed(request)
}

/** A tool in the shape of the backend. */
export const functionTool = (definition: { readonly [key: string]: Json | undefined }): JsonObject => ({
  type: "function",
  function: present(definition)
})

/**
 * The tools that are sent: all, or those that a client names. The backend cannot be forced to call one. `refusal` is for names that
 * no tool has.
 */
export const chosenTools = (
  tools: ReadonlyArray<JsonObject>,
  names: ReadonlyArray<Json | undefined> | undefined,
  refusal: string
): Decided<ReadonlyArray<JsonObject> | undefined> => {
  const sent = names === undefined ? tools : tools.filter((tool) => names.includes(fieldOf(tool, "name")))
  if (sent.length > 0) return Result.succeed(sent)
  return names === undefined ? Result.succeed(undefined) : refuse(refusal)
}
