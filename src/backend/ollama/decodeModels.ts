/**
 * What the model server says of its models (docs/protocol.md, "Models and descriptions").
 *
 * The answer of `POST /api/show` is rebuilt from an allow-list of keys. The system prompt, template, modelfile, built-in
 * messages, remote hosts and fields of later versions are left out. Of `GET /api/tags` a malformed entry is left out; the others
 * stay.
 */
import { Option, Schema } from "effect"
import type { Description, Model } from "../../domain/Model.ts"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { isArray, isObject, present, tryParseJson } from "../../domain/json.ts"

const Text = Schema.optional(Schema.NullOr(Schema.String))
const Count = Schema.optional(Schema.NullOr(Schema.Finite))

/** `details` of a model, as in the list and in `/api/show`. */
const Details = Schema.Struct({
  format: Text,
  family: Text,
  families: Schema.optional(Schema.NullOr(Schema.Array(Schema.String))),
  parameter_size: Text,
  quantization_level: Text,
  context_length: Count,
  embedding_length: Count
})

/** `parent_model` can be a path or a private name, so it is always empty. Clients expect the field. */
const detailsOf = (details: typeof Details.Type): JsonObject => ({
  parent_model: "",
  format: details.format ?? "",
  family: details.family ?? "",
  families: details.families ?? null,
  parameter_size: details.parameter_size ?? "",
  quantization_level: details.quantization_level ?? "",
  ...present({ context_length: details.context_length, embedding_length: details.embedding_length })
})

const decodeDetails = Schema.decodeUnknownOption(Details)
const decodeNames = Schema.decodeUnknownOption(Schema.Array(Schema.String))

/** What a description has as text, where it has it. */
export const shownTexts = ["license", "parameters", "modified_at", "requires", "renderer", "parser"] as const

/** Returns `undefined` unless the text is a JSON object. `model_info` and `capabilities` are always there: clients index them. */
export const decodeShow = (text: string): JsonObject | undefined => {
  const shown = tryParseJson(text)
  if (!isObject(shown)) return undefined
  const result: { [key: string]: Json } = {}
  for (const key of shownTexts) {
    const value = shown[key]
    if (typeof value === "string" && value !== "") result[key] = value
  }
  result["details"] = detailsOf(Option.getOrElse(decodeDetails(shown["details"]), () => ({})))
  result["model_info"] = metadataOf(shown["model_info"]) ?? {}
  const projector = metadataOf(shown["projector_info"])
  if (projector !== undefined) result["projector_info"] = projector
  const tensors = shown["tensors"]
  if (isArray(tensors)) result["tensors"] = tensors.filter(isObject).map(tensorOf)
  result["capabilities"] = Option.getOrElse(decodeNames(shown["capabilities"]), () => [])
  return result
}

/** Further capabilities, and those with long names, are left out. */
const maxCapabilities = 64

/** Decodes what discovery needs. Returns `undefined` unless the text is a JSON object. */
export const decodeDescription = (text: string): Description | undefined => {
  const shown = tryParseJson(text)
  if (!isObject(shown)) return undefined
  const capabilities = Option.getOrUndefined(decodeNames(shown["capabilities"]))
  const info = shown["model_info"]
  const architecture = isObject(info) ? info["general.architecture"] : undefined
  const length =
    isObject(info) && typeof architecture === "string" ? info[`${architecture}.context_length`] : undefined
  return {
    ...(capabilities === undefined
      ? {}
      : { capabilities: capabilities.filter((name) => name.length <= 64).slice(0, maxCapabilities) }),
    ...contextLengthOf(length),
    ...numCtxOf(shown["parameters"]),
    ...tokenizerOf(isObject(info) ? info : {})
  }
}

/** `parameters` has a line for each parameter of the Modelfile: its name, blanks, its value. */
const numCtxOf = (parameters: Json | undefined): Pick<Description, "numCtx"> => {
  const line = typeof parameters === "string" ? /^num_ctx\s+(\d{1,9})$/m.exec(parameters) : null
  return line === null || Number(line[1]) <= 0 ? {} : { numCtx: Number(line[1]) }
}

const tokenizerOf = (info: JsonObject): Pick<Description, "tokenizer"> => {
  const { "tokenizer.ggml.model": kind, "tokenizer.ggml.pre": split } = info
  if (typeof kind !== "string" || kind.length > 64) return {}
  return { tokenizer: { kind, split: typeof split === "string" && split.length <= 64 ? split : "" } }
}

/** The field `contextLength`, if `value` is a possible one. */
const contextLengthOf = (value: Json | undefined): Pick<Description, "contextLength"> =>
  typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? { contextLength: value } : {}

const metadataOf = (value: Json | undefined): JsonObject | undefined =>
  isObject(value) ? withoutTemplates(value, 0) : undefined

/** Deeper values are left out. Metadata has two or three levels. */
const maxDepth = 16

/** Removes chat templates at any depth, because some contain the system prompt. */
const withoutTemplates = (value: JsonObject, depth: number): JsonObject => {
  const result: { [key: string]: Json } = {}
  for (const [key, inner] of Object.entries(value)) {
    const pruned = /chat[_-]?template/i.test(key) ? undefined : prune(inner, depth + 1)
    // An assignment to this key would set the prototype.
    if (pruned !== undefined && key !== "__proto__") result[key] = pruned
  }
  return result
}

const prune = (value: Json, depth: number): Json | undefined => {
  if (depth > maxDepth) return undefined
  if (isArray(value))
    return value.map((inner) => prune(inner, depth + 1)).filter((inner) => inner !== undefined)
  return isObject(value) ? withoutTemplates(value, depth) : value
}

const tensorOf = ({ name, shape, type }: JsonObject): JsonObject => ({
  name: typeof name === "string" ? name : "",
  type: typeof type === "string" ? type : "",
  shape: shape !== undefined && isArray(shape) ? shape.filter((size) => typeof size === "number") : []
})

/** Further models are left out, because each entry takes time to check. No server has so many. */
const maxModels = 10_000

const Names = Schema.optional(Schema.NullOr(Schema.Array(Schema.String)))

const Entry = Schema.Struct({
  name: Schema.NonEmptyString,
  model: Text,
  modified_at: Text,
  size: Count,
  digest: Text,
  details: Schema.optional(Schema.NullOr(Details)),
  capabilities: Names,
  remote_model: Text,
  remote_host: Text
})

const decodeEntry = Schema.decodeUnknownOption(Entry)
const decodeList = Schema.decodeUnknownOption(
  Schema.fromJsonString(Schema.Struct({ models: Schema.NullOr(Schema.Array(Schema.Unknown)) }))
)

/** Returns `undefined` unless the text is a list of models. */
export const decodeTags = (text: string): ReadonlyArray<Model> | undefined => {
  const list = decodeList(text)
  if (Option.isNone(list)) return undefined
  return (list.value.models ?? []).slice(0, maxModels).flatMap((value) => {
    const entry = decodeEntry(value)
    return Option.isSome(entry) && isLocal(entry.value) ? [modelOf(entry.value)] : []
  })
}

type Entry = typeof Entry.Type

/** Whether the model runs on the backend itself. Prompts must not go to another host. */
const isLocal = (entry: Entry): boolean =>
  !entry.remote_host && !entry.remote_model && !isCloud(entry.name) && !isCloud(entry.model ?? "")

/** Whether the tag is `cloud`, or ends in `-cloud`. */
const isCloud = (name: string): boolean => {
  const last = name.slice(name.lastIndexOf("/") + 1)
  return last.includes(":") && /[:-]cloud$/i.test(last.slice(last.indexOf(":")))
}

const modelOf = (entry: Entry): Model => ({
  name: entry.name,
  modifiedAt: entry.modified_at ?? "1970-01-01T00:00:00Z",
  size:
    entry.size !== undefined && entry.size !== null && Number.isSafeInteger(entry.size)
      ? Math.max(0, entry.size)
      : 0,
  digest: entry.digest ?? "",
  details: detailsOf(entry.details ?? {}),
  ...contextLengthOf(entry.details?.context_length ?? undefined),
  ...(entry.capabilities === undefined || entry.capabilities === null
    ? {}
    : { capabilities: entry.capabilities })
})
