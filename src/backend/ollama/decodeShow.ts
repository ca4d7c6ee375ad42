/**
 * The answer of `POST /api/show`, built from an allow-list of keys. The system prompt, template, modelfile, built-in
 * messages, remote hosts and fields of later versions do not come through (docs/protocol.md, "Models and descriptions").
 */
import { Option, Schema } from "effect"
import type { Description } from "../../domain/Model.ts"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { isArray, isObject } from "../../domain/json.ts"
import { Details, detailsOf } from "./decodeDetails.ts"

const Shown = Schema.fromJsonString(Schema.JsonObject)
const decode = Schema.decodeUnknownOption(Shown)
const decodeDetails = Schema.decodeUnknownOption(Details)
const decodeNames = Schema.decodeUnknownOption(Schema.Array(Schema.String))

const texts = ["license", "parameters", "modified_at", "requires", "renderer", "parser"] as const

/** `undefined` when the text is not a JSON object. `model_info` and `capabilities` are always there: clients index them. */
export const decodeShow = (text: string): JsonObject | undefined => {
  const shown = Option.getOrUndefined(decode(text))
  if (shown === undefined) return undefined
  const kept: { [key: string]: Json } = {}
  for (const key of texts) {
    const value = shown[key]
    if (typeof value === "string" && value !== "") kept[key] = value
  }
  kept["details"] = detailsOf(Option.getOrElse(decodeDetails(shown["details"]), () => ({})))
  kept["model_info"] = metadataOf(shown["model_info"]) ?? {}
  const projector = metadataOf(shown["projector_info"])
  if (projector !== undefined) kept["projector_info"] = projector
  const tensors = shown["tensors"]
  if (isArray(tensors)) kept["tensors"] = tensors.filter(isObject).map(tensorOf)
  kept["capabilities"] = Option.getOrElse(decodeNames(shown["capabilities"]), () => [])
  return kept
}

/** A backend that lists more than this many capabilities, or longer ones, does not mean capabilities. */
const mostCapabilities = 64

/** What discovery needs of the same answer; `undefined` when the text is not a JSON object. */
export const decodeDescription = (text: string): Description | undefined => {
  const shown = Option.getOrUndefined(decode(text))
  if (shown === undefined) return undefined
  const capabilities = Option.getOrUndefined(decodeNames(shown["capabilities"]))
  const info = shown["model_info"]
  const architecture = isObject(info) ? info["general.architecture"] : undefined
  const length =
    isObject(info) && typeof architecture === "string" ? info[`${architecture}.context_length`] : undefined
  return {
    ...(capabilities === undefined
      ? {}
      : { capabilities: capabilities.filter((name) => name.length <= 64).slice(0, mostCapabilities) }),
    ...contextLengthOf(length),
    ...tokenizerOf(isObject(info) ? info : {})
  }
}

const tokenizerOf = (info: JsonObject): Pick<Description, "tokenizer"> => {
  const { "tokenizer.ggml.model": kind, "tokenizer.ggml.pre": split } = info
  if (typeof kind !== "string" || kind.length > 64) return {}
  return { tokenizer: { kind, split: typeof split === "string" && split.length <= 64 ? split : "" } }
}

/** A context length that can be one, as a field of a model. */
export const contextLengthOf = (value: Json | undefined): Pick<Description, "contextLength"> =>
  typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? { contextLength: value } : {}

const metadataOf = (value: Json | undefined): JsonObject | undefined =>
  isObject(value) ? withoutTemplates(value, 0) : undefined

/** Metadata is two or three levels deep; what is deeper than this is not metadata. */
const deepest = 16

/** A chat template is the system prompt's frame, and some hold the prompt itself: no key of that name, at any depth. */
const withoutTemplates = (value: JsonObject, depth: number): JsonObject => {
  const kept: { [key: string]: Json } = {}
  for (const [key, inner] of Object.entries(value)) {
    const pruned = /chat[_-]?template/i.test(key) ? undefined : prune(inner, depth + 1)
    // As JSON has it: a plain assignment to this key would set the prototype.
    if (pruned !== undefined && key !== "__proto__") kept[key] = pruned
  }
  return kept
}

const prune = (value: Json, depth: number): Json | undefined => {
  if (depth > deepest) return undefined
  if (isArray(value))
    return value.map((inner) => prune(inner, depth + 1)).filter((inner) => inner !== undefined)
  return isObject(value) ? withoutTemplates(value, depth) : value
}

const tensorOf = ({ name, shape, type }: JsonObject): JsonObject => ({
  name: typeof name === "string" ? name : "",
  type: typeof type === "string" ? type : "",
  shape: shape !== undefined && isArray(shape) ? shape.filter((size) => typeof size === "number") : []
})
