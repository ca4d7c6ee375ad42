/**
 * A client's JSON body, checked before anything is believed of it (contract §5): content type, encoding, size to
 * the byte, UTF-8, nesting and keys. It is read only after its sender is known.
 */
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { ByteSize, Duration, Effect, Result } from "effect"
import { HttpIncomingMessage, type HttpServerError, HttpServerRequest } from "effect/http"
import { BadRequest, PayloadTooLarge } from "../domain/Errors.ts"
import type { Json } from "../domain/Inference.ts"
import { parseJson } from "./json.ts"

const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

const headerProblem = (headers: HttpServerRequest.HttpServerRequest["headers"]): string | undefined => {
  if (!jsonType.test(headers["content-type"] ?? "")) return "Content-Type: expected application/json"
  const encoding = headers["content-encoding"]
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return "Content-Encoding: expected none"
  }
  return undefined
}

const tooLarge = (error: HttpServerError.HttpServerError): boolean =>
  error.reason._tag === "RequestParseError" && error.reason.reason === "BodyTooLarge"

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decodeUtf8 = (bytes: ArrayBuffer): Result.Result<string, string> =>
  Result.try({ try: () => utf8.decode(bytes), catch: () => "body: expected valid UTF-8" })

export interface Body {
  readonly json: Json
  /** as received */
  readonly bytes: number
}

/** A body that trickles in holds nothing but its own socket; still, it does not do so for ever. */
const readTimeout = Duration.seconds(30)

export const readBody = Effect.fnUntraced(function* (
  limitBytes: number
): Effect.fn.Return<Body, BadRequest | PayloadTooLarge, HttpServerRequest.HttpServerRequest> {
  const request = yield* HttpServerRequest.HttpServerRequest
  const declared = Number(request.headers["content-length"] ?? 0)
  if (declared > limitBytes) return yield* new PayloadTooLarge({ limitBytes })
  const bytes = yield* request.arrayBuffer.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.fromInputUnsafe(limitBytes)),
    Effect.timeoutOrElse({
      duration: readTimeout,
      orElse: () => Effect.fail(new BadRequest({ detail: "body: not received in time" }))
    }),
    Effect.mapError((error) =>
      error._tag === "BadRequest"
        ? error
        : tooLarge(error)
          ? new PayloadTooLarge({ limitBytes })
          : new BadRequest({ detail: "body: not received whole" })
    )
  )
  const problem = headerProblem(request.headers)
  if (problem !== undefined) return yield* new BadRequest({ detail: problem })
  const incoming = NodeHttpServerRequest.toIncomingMessage(request)
  if (
    incoming.rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === "content-type").length > 1
  ) {
    return yield* new BadRequest({ detail: "Content-Type: expected it once" })
  }
  if (bytes.byteLength === 0) return yield* new BadRequest({ detail: "body: missing" })
  const json = Result.flatMap(decodeUtf8(bytes), parseJson)
  if (Result.isFailure(json)) return yield* new BadRequest({ detail: json.failure })
  return { json: json.success, bytes: bytes.byteLength }
})
