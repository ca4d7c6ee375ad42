/** Decodes embeddings. An answer that does not fit the request is refused. */
import { countsIn, type Embeddings } from "../../domain/Frame.ts"
import type { Json, PreparedRequest } from "../../domain/Inference.ts"
import { isArray, isObject, tryParseJson } from "../../domain/json.ts"
import { hasMoreThan } from "../answerBounds.ts"

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
 * the numbers. Without the bound a long list overflows its stack.
 */
const vector = new RegExp(
  `^(\\[[ \\t\\n\\r]*${number}(?:${comma}${number}){0,65535}[ \\t\\n\\r]*\\])([^[]*)$`
)

/** Base64 of little-endian float32, as OpenAI's clients expect it. No machine that the gateway runs on is big-endian. */
const base64Of = (numbers: ReadonlyArray<number>): string =>
  `"${Buffer.from(new Float32Array(numbers).buffer).toString("base64")}"`

/**
 * Puts each vector aside. A string of a list of its index stands in its place, which the answer cannot have had: its list would have been a
 * vector. A vector is tested as text, one at a time, and then is bytes of the answer: the texts of all cost V8 more than the test.
 * Latin-1 is enough: the only texts that are read are numbers.
 *
 * Returns `undefined` when there are more lists than `most`, or a list is too long. Each list costs more than its bytes: 32 MiB of `[`
 * would take 20 seconds, and numbers that are no vector five times the memory of their text.
 */
const takeVectors = (bytes: Buffer, most: number, base64: boolean) => {
  const vectors = new Map<Json, string | Buffer>()
  let [rest, at] = ["", 0]
  for (let lists = 0; at < bytes.length; lists += 1) {
    const next = bytes.indexOf("[", at + 1)
    const end = next === -1 ? bytes.length : next
    if (lists > most || end - at > longestVector || rest.length > longestRest) return undefined
    const text = bytes.toString("latin1", at, end)
    const [, found, after = text] = vector.exec(text) ?? []
    if (found !== undefined) {
      const place = `[${vectors.size}]`
      vectors.set(place, base64 ? base64Of(JSON.parse(found)) : bytes.subarray(at, at + found.length))
      rest += `"${place}"`
    }
    rest += after
    at = end
  }
  return { rest, vectors }
}

/** Returns `undefined` unless there is one vector per input. */
export const decodeEmbeddings = (
  { base64 = false, inputs, kind }: Pick<PreparedRequest, "base64" | "inputs" | "kind">,
  bytes: Buffer
): Embeddings | undefined => {
  const taken = takeVectors(bytes, inputs + spareContainers, base64)
  // An empty list takes 30 times the memory of its text.
  if (taken === undefined || hasMoreThan(taken.rest, inputs + spareContainers)) return undefined
  const value = tryParseJson(taken.rest)
  if (!isObject(value)) return undefined
  const { embedding, embeddings } = value
  // An empty prompt only loads the model, and its vector is empty.
  if (kind === "embeddings" && inputs === 0) return isEmpty(embedding) ? { vectors: ["[]"] } : undefined
  const places = kind === "embed" ? embeddings : [embedding ?? null]
  if (!isArray(places) || places.length !== inputs) return undefined
  const vectors = places.flatMap((place) => taken.vectors.get(place) ?? [])
  return vectors.length === inputs ? { ...countsIn(value), vectors } : undefined
}

const isEmpty = (value: Json | undefined): boolean => isArray(value) && value.length === 0
