/**
 * Bounds the tools of a request. Their `parameters` are forwarded unchanged as part of the prompt. A model server that makes
 * a grammar of them (Ollama up to 0.24 does not) works for each level and each value, so both are bounded.
 */
import { Result } from "effect"
import { isDeeperThan } from "../../domain/json.ts"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { DecodedRequest, Json } from "../../domain/Inference.ts"

/** Tools of one request. */
export const maxTools = 128
/** Levels of objects and lists in the `parameters` of one tool. */
export const maxToolDepth = 32
/** Values in the `parameters` of one tool, including objects and lists. */
export const maxToolValues = 4096

const valuesIn = (value: Json): number =>
  typeof value === "object" && value !== null
    ? Object.values(value).reduce<number>((sum, item) => sum + valuesIn(item), 1)
    : 1

const parametersOf = (tool: Json): Json => {
  if (typeof tool !== "object" || tool === null || !("function" in tool)) return null
  const { function: definition } = tool
  return typeof definition === "object" && definition !== null && "parameters" in definition
    ? (definition.parameters ?? null)
    : null
}

const problemOf = (tool: Json): string | undefined => {
  const parameters = parametersOf(tool)
  if (isDeeperThan(parameters, maxToolDepth)) return `expected at most ${maxToolDepth} levels`
  return valuesIn(parameters) > maxToolValues ? `expected at most ${maxToolValues} values` : undefined
}

export const checkTools = (request: DecodedRequest): Decided<DecodedRequest> => {
  const { tools } = request.body
  if (!Array.isArray(tools)) return Result.succeed(request)
  if (tools.length > maxTools) return refuse(`tools: expected at most ${maxTools}`)
  for (const [i, tool] of tools.entries()) {
    const problem = problemOf(tool)
    if (problem !== undefined) return refuse(`tools.${i}.function.parameters: ${problem}`)
  }
  return Result.succeed(request)
}
