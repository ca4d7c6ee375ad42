/**
 * What an endpoint needs from its surface. Everything else is the same for all surfaces. A dialect is a folder beside this file,
 * which nothing but the route table and `build/openapi` imports.
 */
import { Result, type Schema } from "effect"
import { type Decided, refuse } from "../../domain/Errors.ts"
import { isObject } from "../../domain/json.ts"
import type { Frame, Parts } from "../../domain/Frame.ts"
import type { AnsweredRequest, DecodedRequest, Json } from "../../domain/Inference.ts"
import type { Body } from "./strictJson.ts"
import { decodeWith, maxDetail } from "./decode.ts"
import type { Guards } from "../../backend/Guards.ts"
import { imageOf, maxImages } from "./images.ts"
import { checkTools } from "./tools.ts"
import type { ErrorBody } from "../../domain/Surface.ts"
import type { ErrorResponse } from "../errors/errorResponses.ts"

/** Seals the ids of a context for a client; undefined: the answer has no context. */
export type SealContext = (ids: ReadonlyArray<number>) => ReadonlyArray<number> | undefined

/** What an encoder gets beside the request. */
export interface AnswerFacts {
  /** unique; ids in the answer may be made of it */
  readonly requestId: string
  readonly seal: SealContext
  /** the JSON of an error on this surface; default: the common one */
  readonly errorBody?: ErrorBody
}

/** Bounds on what a client may ask for. */
export interface Bounds {
  readonly numPredictCap: number
  /** `OUTPUT_ABOVE_CAP=lower`, for `/v1/*` */
  readonly lowersOutput: boolean
  /** undefined: a client's `num_ctx` is dropped */
  readonly numCtxCap: number | undefined
  /** tools of one request that are sent */
  readonly toolsMax: number
}

/** Writes one answer. Each answer has its own encoder, which may keep state between frames. */
export interface Encoder {
  /** the text for the frames of one network chunk, possibly "" */
  readonly frames: (chunk: ReadonlyArray<Frame>) => string
  /** bytes of memory of what the last events repeat of the answer; absent: they repeat nothing */
  readonly kept?: () => number
  /** the last line or event of an answer that fails after its first byte */
  readonly failure: (error: ErrorResponse, requestId: string) => string
  /**
   * Text for a client that has heard nothing for ten seconds, from the first frame on and after it. Without it the head of the answer
   * waits for the first frame. After it, an early failure is no status but `failure`. All server-sent events have it, and no NDJSON.
   */
  readonly waiting?: () => string
  /** the text of the object of an answer without a stream; `run` has all frames in one */
  readonly object: (run: Frame) => string
}

/** The texts of all frames of a chunk. Most chunks have one frame. */
export const joined = (chunk: ReadonlyArray<Frame>, textOf: (frame: Frame) => string): string => {
  let text = ""
  for (const frame of chunk) text += textOf(frame)
  return text
}

/** Decodes a body. It waits for nothing. */
export type Decode = (body: Body, bounds: Bounds, guards: Guards) => Decided<DecodedRequest>

/** How an endpoint reads its requests. */
export interface RequestDecoder {
  /** all known fields; tests of rules for all fields use it */
  readonly accepts: Schema.Top
  readonly decode: Decode
}

/** What a surface calls the fields that are checked after decoding. Refusals use these names. */
export interface FieldNames {
  /** the schema of the answer */
  readonly schema: string
  /** the schema of a tool, within the tool */
  readonly toolSchema: string
}

const imagesIn = (holder: Json | undefined): ReadonlyArray<Json> =>
  typeof holder === "object" && holder !== null && "images" in holder && Array.isArray(holder.images)
    ? holder.images
    : []

/** The images of a decoded request: those of the prompt, and those of each message. */
const imagesOf = ({ body }: DecodedRequest): ReadonlyArray<Json> => {
  const { messages } = body
  return Array.isArray(messages) ? messages.flatMap(imagesIn) : imagesIn(body)
}

/** Bounds their number, and keeps their sizes. */
const checkImages = (request: DecodedRequest): Decided<DecodedRequest> => {
  const images = imagesOf(request)
  if (images.length === 0) return Result.succeed(request)
  if (images.length > maxImages) return refuse(`images: expected at most ${maxImages} in one request`)
  const readable = images.flatMap((image) => (typeof image === "string" ? (imageOf(image) ?? []) : []))
  return Result.succeed({ ...request, images: readable })
}

/** Admits or refuses the schema of a decoded request. `field`: the client's own name of it. */
const admitFormat = (request: DecodedRequest, field: string, guards: Guards): Decided<DecodedRequest> => {
  const { format } = request.body
  if (!isObject(format)) return Result.succeed(request)
  const admitted = guards.schema(format, field)
  if (Result.isFailure(admitted)) return refuse(admitted.failure.slice(0, maxDetail))
  const { relaxed, schema } = admitted.success
  return Result.succeed({ ...request, body: { ...request.body, format: schema }, relaxed })
}

/**
 * Makes a decoder. `build` gets only what `accepts` has checked. Images, tools and schemas that could harm the model server
 * are refused for every endpoint.
 */
export const requestDecoder = <A, I>(
  accepts: Schema.Codec<A, I>,
  build: (value: A, bounds: Bounds) => Decided<DecodedRequest>,
  names: FieldNames = { schema: "format", toolSchema: "function.parameters" }
): RequestDecoder => {
  const decode = decodeWith(accepts)
  return {
    accepts,
    decode: (body, bounds, guards) =>
      decode(body.json).pipe(
        Result.flatMap((value) => build(value, bounds)),
        Result.flatMap(checkImages),
        Result.flatMap((request) => checkTools(request, names.toolSchema, bounds.toolsMax)),
        Result.flatMap((request) => admitFormat(request, names.schema, guards))
      )
  }
}

/** An endpoint that generates. Its answer is a stream, or one object made from the stream. */
export interface Dialect extends RequestDecoder {
  readonly contentType: string
  readonly encoder: (request: AnsweredRequest, facts: AnswerFacts) => Encoder
}

/** An endpoint with one object as its answer. */
export interface ObjectDialect<A> extends RequestDecoder {
  /** the answer as JSON text, in parts */
  readonly encode: (request: AnsweredRequest, answer: A) => Parts
}
