/**
 * Embeddings rebuilt from what the backend said, by hand-written guards: two thousand vectors are some million
 * numbers, and each is looked at. An answer that does not fit the request is no answer.
 */
import type { Embeddings, Vector } from "../../domain/Embeddings.ts"
import type { InferenceRequest, Json } from "../../domain/Inference.ts"
import { isArray, isCount, isObject, tryParseJson } from "../../domain/json.ts"
import { sliceVectors } from "./embeddingSlices.ts"

/** The endpoints that answer with vectors. */
export type EmbedKind = "embed" | "embeddings"

/** `undefined` when the text is not one vector per input of `body`. */
export const decodeEmbeddings = (
  kind: EmbedKind,
  body: InferenceRequest["body"],
  text: string
): Embeddings | undefined => {
  const value = tryParseJson(text)
  if (!isObject(value)) return undefined
  if (kind === "embeddings") {
    const vector = value["embedding"]
    // Nothing in, nothing out: an empty prompt only loads the model.
    const expected = body["prompt"] !== ""
    if (!isVector(vector) || vector.length > 0 !== expected) return undefined
    return { vectors: withTexts([vector], sliceVectors("embedding", text)) }
  }
  const vectors = value["embeddings"]
  if (!isArray(vectors) || vectors.length !== inputsOf(body["input"])) return undefined
  if (!vectors.every((vector) => isVector(vector) && vector.length > 0)) return undefined
  return {
    vectors: withTexts(vectors.filter(isVector), sliceVectors("embeddings", text)),
    ...(isCount(value["total_duration"]) ? { totalDuration: value["total_duration"] } : {}),
    ...(isCount(value["load_duration"]) ? { loadDuration: value["load_duration"] } : {}),
    ...(isCount(value["prompt_eval_count"]) ? { promptEvalCount: value["prompt_eval_count"] } : {})
  }
}

const withTexts = (
  vectors: ReadonlyArray<ReadonlyArray<number>>,
  texts: ReadonlyArray<string> = []
): ReadonlyArray<Vector> =>
  vectors.map((numbers, i) => ({
    numbers,
    json: (texts.length === vectors.length ? texts[i] : undefined) ?? JSON.stringify(numbers)
  }))

/** An empty string is no input; an empty string in a list is one (docs/protocol.md, "Embeddings"). */
const inputsOf = (input: Json | undefined): number => (isArray(input) ? input.length : input === "" ? 0 : 1)

/** Finite as the float32 it becomes for clients that ask for base64. */
const isFinite32 = (value: Json): value is number =>
  typeof value === "number" && Number.isFinite(Math.fround(value))
const isVector = (value: Json | undefined): value is ReadonlyArray<number> =>
  isArray(value) && value.every(isFinite32)
