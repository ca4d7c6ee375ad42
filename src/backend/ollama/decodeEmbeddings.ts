/** Decodes embeddings. An answer that does not fit the request is refused. */
import { countsIn, type Embeddings } from "../../domain/Frame.ts"
import type { Json } from "../../domain/Inference.ts"
import { isArray, isObject, tryParseJson } from "../../domain/json.ts"
import { hasMoreThan } from "../answerBounds.ts"

/** The endpoints that answer with vectors. */
export type EmbedKind = "embed" | "embeddings"

/** Lists and objects beside the vectors: the answer itself, and fields of later versions. */
const spareContainers = 64
/** Bytes of a vector, with what follows it up to the next list: 65,536 numbers of 30 bytes. */
const longestVector = 2 * 1024 * 1024
/** Bytes of the answer without its vectors. */
const longestRest = 256 * 1024

/** A number of JSON below 10^37, so it is finite as a float32 too: clients may ask for base64 of float32. */
const number = String.raw`-?(?:0|[1-9]\d{0,20})(?:\.\d+)?(?:[eE](?:-\d+|\+?(?:\d|1[0-6])))?`
const comma = String.raw`[ \t\n\r]*,[ \t\n\r]*`
/**
 * A vector of at most 65,536 numbers, with what follows it up to the next list. Testing the pattern takes half the time of parsing
 * the numbers, and a quarter of writing them again. Without the bound a long list overflows its stack.
 */
const vector = new RegExp(
  `^(\\[[ \\t\\n\\r]*${number}(?:${comma}${number}){0,65535}[ \\t\\n\\r]*\\])([^[]*)$`
)

/**
 * Puts each vector aside: its index, as a string, stands in its place. The vectors are decoded one at a time, because a string of
 * the whole answer costs V8 more than the rest of the work. Latin-1 is enough: the only texts that are read are numbers.
 *
 * Returns `undefined` when there are more lists than `most`, or a list is too long. Each list costs more than its bytes: 32 MiB of `[`
 * would take 20 seconds, and numbers that are no vector five times the memory of their text.
 */
const takeVectors = (bytes: Buffer, most: number) => {
  const vectors: Array<string> = []
  let [rest, at] = ["", 0]
  for (let lists = 0; at < bytes.length; lists += 1) {
    const next = bytes.indexOf("[", at + 1)
    const end = next === -1 ? bytes.length : next
    if (lists > most || end - at > longestVector || rest.length > longestRest) return undefined
    const text = bytes.toString("latin1", at, end)
    const [, found, after] = vector.exec(text) ?? []
    rest += found === undefined ? text : `"${vectors.push(found) - 1}"${after}`
    at = end
  }
  return { rest, vectors }
}

/** Returns `undefined` unless there is one vector per input. */
export const decodeEmbeddings = (kind: EmbedKind, inputs: number, bytes: Buffer): Embeddings | undefined => {
  const taken = takeVectors(bytes, inputs + spareContainers)
  // An empty list takes 30 times the memory of its text.
  if (taken === undefined || hasMoreThan(taken.rest, spareContainers)) return undefined
  const { rest, vectors: found } = taken
  const value = tryParseJson(rest)
  if (!isObject(value)) return undefined
  const vectorOf = (place: Json | undefined) => (typeof place === "string" ? found[Number(place)] : undefined)
  if (kind === "embeddings") {
    const { embedding } = value
    // An empty prompt only loads the model, and its vector is empty.
    const only = inputs === 0 ? emptyVector(embedding) : vectorOf(embedding)
    return only === undefined ? undefined : { vectors: [only] }
  }
  const { embeddings } = value
  if (!isArray(embeddings) || embeddings.length !== inputs) return undefined
  const vectors = embeddings.flatMap((place) => vectorOf(place) ?? [])
  return vectors.length === inputs ? { ...countsIn(value), vectors } : undefined
}

const emptyVector = (value: Json | undefined): string | undefined =>
  isArray(value) && value.length === 0 ? "[]" : undefined
