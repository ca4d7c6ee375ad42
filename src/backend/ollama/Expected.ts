/** The answers of one JSON object that are asked for, with their bounds. */
import { Effect } from "effect"
import type { Embeddings } from "../../domain/Frame.ts"
import type { BackendFailed } from "../../domain/Errors.ts"
import type { JsonObject, PreparedRequest } from "../../domain/Inference.ts"
import type { Description, Model } from "../../domain/Model.ts"
import {
  isTooDense,
  parsedFactor,
  showBytes,
  tagsBytes,
  vectorBytesOf,
  vectorsFactor
} from "../answerBounds.ts"
import type { Pinged } from "../Backend.ts"
import { decodeEmbeddings } from "./decodeEmbeddings.ts"
import { decodeDescription, decodeShow, decodeTags } from "./decodeModels.ts"
import { decodePinged } from "./decodePinged.ts"
import { errorBytes, protocol } from "./errors.ts"

/** An answer of one object. */
export interface Expected<A> {
  /** maximal bytes */
  readonly limit: number
  /** memory of the text and the decoded answer, as a multiple of the text's bytes */
  readonly factor: number
  readonly decode: (bytes: Buffer) => Effect.Effect<A, BackendFailed>
}

/** Decodes the text of an answer, unless it would take too much memory. */
const fromText =
  <A>(decode: (text: string) => A | undefined, otherwise: string) =>
  (bytes: Buffer): Effect.Effect<A, BackendFailed> => {
    const text = bytes.toString("utf8")
    return expect(isTooDense(text) ? undefined : decode(text), otherwise)
  }

export const description: Expected<JsonObject> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: fromText(decodeShow, "not a model's description")
}
export const ownDescription: Expected<Description> = {
  limit: showBytes,
  factor: parsedFactor,
  decode: fromText(decodeDescription, "not a model's description")
}
export const list: Expected<ReadonlyArray<Model>> = {
  limit: tagsBytes,
  factor: parsedFactor,
  decode: fromText(decodeTags, "not a list of models")
}
export const pinged: Expected<Pinged> = {
  limit: errorBytes,
  factor: 1,
  decode: (bytes) => Effect.succeed(decodePinged(bytes.toString("utf8")))
}

export const vectorsFor = (request: PreparedRequest): Expected<Embeddings> => ({
  limit: vectorBytesOf(request),
  factor: vectorsFactor(request),
  decode: (bytes) => expect(decodeEmbeddings(request, bytes), "not the vectors asked for")
})

const expect = <A>(value: A | undefined, otherwise: string): Effect.Effect<A, BackendFailed> =>
  value === undefined ? protocol(otherwise) : Effect.succeed(value)
