/**
 * Decodes embeddings with hand-written guards, and without parsing the numbers: two thousand vectors have some million. An
 * answer that does not fit the request is refused.
 */
import type { Embeddings, Vector } from "../../domain/Embeddings.ts"
import type { InferenceRequest, Json } from "../../domain/Inference.ts"
import { isArray, isCount, isObject, tryParseJson } from "../../domain/json.ts"
import type { ByteList } from "../../infra/ByteList.ts"
import { countNumbers } from "./countNumbers.ts"
import { sliceVectors } from "./embeddingSlices.ts"
import { countSimpleNumbers } from "./simpleNumbers.ts"

/** The endpoints that answer with vectors. */
export type EmbedKind = "embed" | "embeddings"

/** Returns `undefined` unless there is one vector per input of `body`. The vectors share the memory of `bytes`. */
export const decodeEmbeddings = (
  kind: EmbedKind,
  body: InferenceRequest["body"],
  bytes: ByteList
): Embeddings | undefined => {
  const inputs = kind === "embed" ? inputsOf(body["input"]) : 1
  const slices = sliceVectors(kind === "embed" ? "embeddings" : "embedding", bytes, inputs)
  const value = slices === undefined ? undefined : tryParseJson(slices.envelope)
  if (slices === undefined || !isObject(value)) return undefined
  if (kind === "embeddings") {
    const vectors = vectorsOf(slices.vectors)
    // An empty prompt only loads the model, and its vector is empty.
    const expected = body["prompt"] !== ""
    return vectors?.every(({ length }) => length > 0 === expected) === true ? { vectors } : undefined
  }
  if (slices.vectors.length !== inputs) return undefined
  const vectors = vectorsOf(slices.vectors)
  if (vectors === undefined || vectors.some(({ length }) => length === 0)) return undefined
  return {
    vectors,
    list: slices.value,
    ...(isCount(value["total_duration"]) ? { totalDuration: value["total_duration"] } : {}),
    ...(isCount(value["load_duration"]) ? { loadDuration: value["load_duration"] } : {}),
    ...(isCount(value["prompt_eval_count"]) ? { promptEvalCount: value["prompt_eval_count"] } : {})
  }
}

/** Returns undefined when one of `slices` is not a vector. */
const vectorsOf = (slices: ReadonlyArray<Buffer>): ReadonlyArray<Vector> | undefined => {
  const vectors: Array<Vector> = []
  for (const json of slices) {
    const length = countSimpleNumbers(json) ?? countNumbers(json)
    if (length === undefined) return undefined
    vectors.push({ json, length })
  }
  return vectors
}

/** An empty string is no input; an empty string in a list is one (docs/protocol.md, "Embeddings"). */
const inputsOf = (input: Json | undefined): number => (isArray(input) ? input.length : input === "" ? 0 : 1)
