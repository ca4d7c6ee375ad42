/**
 * Bounds and chooses the tools of a request. Their `parameters` are forwarded unchanged as part of the prompt. A model server
 * that makes a grammar of them works for each level and each value, so both are bounded.
 */
import { Result } from "effect"
import { isDeeperThan, isObject, present } from "../../domain/json.ts"
import { type Decided, refuse } from "../../domain/Errors.ts"
import type { DecodedRequest, Json, JsonObject } from "../../domain/Inference.ts"

/** Tools that a client may list, with those that are left out. `TOOLS_MAX` bounds those that are sent. */
export const maxListed = 1024
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
export const checkTools = (
  request: DecodedRequest,
  schemaField: string,
  toolsMax: number
): Decided<DecodedRequest> => {
  const { tools } = request.body
  if (!Array.isArray(tools)) return Result.succeed(request)
  if (tools.length > toolsMax) return refuse(`tools: expected at most ${toolsMax}`)
  for (const tool of tools) {
    const problem = problemOf(tool)
    if (problem !== undefined) return refuse(`tools: ${schemaField} of ${nameOf(tool)}: ${problem}`)
  }
  return Result.succeed(request)
}

/** A tool in the shape of the backend. */
export interface Offer {
  readonly tool: JsonObject
  readonly name: string
  /** `defer_loading`: the model may need it only when a search has found it */
  readonly deferred: boolean
}

interface Definition {
  readonly name: string
  readonly description?: string | null | undefined
  readonly parameters?: JsonObject | null | undefined
}

export const offer = (
  { description, name, parameters }: Definition,
  deferred: boolean | null | undefined
): Offer => ({
  tool: { type: "function", function: present({ name, description, parameters }) },
  name,
  deferred: deferred === true
})

interface Choice {
  /** the names of those that a client chooses, absent: all; and the refusal when no tool has one of them */
  readonly chosen?: { readonly names: ReadonlyArray<Json | undefined>; readonly refusal: string } | undefined
  /** see `Calls` */
  readonly mentioned: ReadonlySet<string>
  readonly toolsMax: number
}

/**
 * The tools that are sent: all, or those that a client names. The backend cannot be forced to call one. Deferred tools that the
 * conversation does not mention have the room that the others leave; the rest waits until a search finds it.
 */
export const chosenTools = (
  offers: ReadonlyArray<Offer>,
  { chosen, mentioned, toolsMax }: Choice
): Decided<ReadonlyArray<JsonObject> | undefined> => {
  const all = chosen === undefined ? offers : offers.filter(({ name }) => chosen.names.includes(name))
  if (all.length === 0) return chosen === undefined ? Result.succeed(undefined) : refuse(chosen.refusal)
  const waits = ({ deferred, name }: Offer): boolean => deferred && !mentioned.has(name)
  let room = toolsMax - all.filter((one) => !waits(one)).length
  return Result.succeed(all.filter((one) => !waits(one) || room-- > 0).map(({ tool }) => tool))
}
