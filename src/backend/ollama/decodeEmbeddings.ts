/** Decodes embeddings. An answer that does not fit the request is refused. */
import { countsIn, type Embeddings } from "../../domain/Frame.ts"
import type { InferenceRequest, Json } from "../../domain/Inference.ts"
import { isArray, isObject, tryParseJson } from "../../domain/json.ts"
import { hasMoreThan } from "../answerBounds.ts"

/** The endpoints that answer with vectors. */
export type EmbedKind = "embed" | "embeddings"

/** Lists and objects beside the vectors: the answer itself, and fields of later versions. */
const spareContainers = 64

/** Returns `undefined` unless there is one vector per input of `body`. */
export const decodeEmbeddings = (
  kind: EmbedKind,
  body: InferenceRequest["body"],
  text: string
): Embeddings | undefined => {
  const inputs = kind === "embed" ? inputsOf(body["input"]) : 1
  // An empty list takes 30 times the memory of its text.
  if (hasMoreThan(text, inputs + spareContainers)) return undefined
  const value = tryParseJson(text)
  if (!isObject(value)) return undefined
  if (kind === "embeddings") {
    const { embedding } = value
    // An empty prompt only loads the model, and its vector is empty.
    const hasNumbers = body["prompt"] !== ""
    return isVector(embedding) && embedding.length > 0 === hasNumbers
      ? { vectors: [embedding], ...textsOf(text, 1) }
      : undefined
  }
  const vectors = vectorsOf(value["embeddings"])
  if (vectors?.length !== inputs || vectors.some(({ length }) => length === 0)) return undefined
  return {
    ...countsIn(value),
    vectors,
    ...textsOf(text, inputs)
  }
}

/**
 * The texts of `count` vectors in `text`, which has passed as JSON with these vectors. Each of them is in brackets without quotes
 * and brackets inside, so each is found. When no more is found, nothing else was. `indexOf` is 60 times as fast as a pattern here.
 */
const textsOf = (text: string, count: number): { readonly texts?: ReadonlyArray<string> } => {
  const texts = text.split("[").flatMap((after, index) => {
    const end = after.indexOf("]")
    if (index === 0 || end === -1) return []
    const inside = after.slice(0, end)
    return ['"', "{", "}"].some((other) => inside.includes(other)) ? [] : [`[${inside}]`]
  })
  return texts.length === count ? { texts } : {}
}

/** Clients that ask for base64 get float32, so a number must be finite as one. */
const isNumber = (value: Json): value is number =>
  typeof value === "number" && Number.isFinite(Math.fround(value))

/** A loop: `every` takes ten times as long for the 25,000 numbers of an ordinary answer. */
const isVector = (value: Json | undefined): value is ReadonlyArray<number> => {
  if (!isArray(value)) return false
  for (const number of value) if (!isNumber(number)) return false
  return true
}

const vectorsOf = (value: Json | undefined): ReadonlyArray<ReadonlyArray<number>> | undefined =>
  isArray(value) && value.every(isVector) ? value : undefined

/** An empty string is no input; an empty string in a list is one (docs/protocol.md, "Embeddings"). */
const inputsOf = (input: Json | undefined): number => (isArray(input) ? input.length : input === "" ? 0 : 1)
