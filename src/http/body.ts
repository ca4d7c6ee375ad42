/**
 * A client's JSON body, checked before anything is believed of it (contract §5): content type, encoding, size to
 * the byte, UTF-8, nesting and keys. It is read only after its sender is known.
 */
import { IncomingMessage } from "node:http"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Duration, Effect, Result, Stream } from "effect"
import { HttpServerRequest } from "effect/http"
import { BadRequest, PayloadTooLarge } from "../domain/Errors.ts"
import type { Json } from "../domain/Inference.ts"
import { isMisframed } from "./framing.ts"
import { parseJson } from "./json.ts"
import { Patience } from "./Patience.ts"

const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

const headerProblem = (headers: HttpServerRequest.HttpServerRequest["headers"]): string | undefined => {
  if (!jsonType.test(headers["content-type"] ?? "")) return "Content-Type: expected application/json"
  const encoding = headers["content-encoding"]
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return "Content-Encoding: expected none"
  }
  return undefined
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decodeUtf8 = (bytes: ArrayBuffer | Uint8Array): Result.Result<string, string> =>
  Result.try({ try: () => utf8.decode(bytes), catch: () => "body: expected valid UTF-8" })

export interface Body {
  readonly json: Json
  /** as received */
  readonly bytes: number
}

/** Bytes to a value, or one sentence about what is wrong with them. */
export const parseBody = (bytes: ArrayBuffer | Uint8Array): Result.Result<Body, string> =>
  bytes.byteLength === 0
    ? Result.fail("body: missing")
    : Result.map(Result.flatMap(decodeUtf8(bytes), parseJson), (json) => ({ json, bytes: bytes.byteLength }))

/** Not `request.arrayBuffer`: interrupted by the clock, that destroys the socket, and the answer with it. */
const collect = Effect.fnUntraced(function* <E>(
  stream: Stream.Stream<Uint8Array, E>,
  limitBytes: number
): Effect.fn.Return<Uint8Array, BadRequest | PayloadTooLarge> {
  const chunks: Array<Uint8Array> = []
  let size = 0
  yield* stream.pipe(
    Stream.mapError(() => new BadRequest({ detail: "body: not received whole" })),
    Stream.runForEachArray((read) => {
      for (const chunk of read) {
        size += chunk.byteLength
        chunks.push(chunk)
      }
      return size > limitBytes ? Effect.fail(new PayloadTooLarge({ limitBytes })) : Effect.void
    })
  )
  return Buffer.concat(chunks)
})

export const readBody = Effect.fnUntraced(function* (
  limitBytes: number
): Effect.fn.Return<Body, BadRequest | PayloadTooLarge, HttpServerRequest.HttpServerRequest> {
  const [request, patience] = [yield* HttpServerRequest.HttpServerRequest, yield* Patience]
  const incoming = NodeHttpServerRequest.toIncomingMessage(request)
  if (!(incoming instanceof IncomingMessage) || isMisframed(incoming)) {
    return yield* new BadRequest({ detail: "Transfer-Encoding: expected nothing but chunked" })
  }
  const declared = Number(request.headers["content-length"] ?? 0)
  if (declared > limitBytes) return yield* new PayloadTooLarge({ limitBytes })
  const bytes = yield* collect(request.stream, limitBytes).pipe(
    Effect.timeoutOrElse({
      duration: Duration.millis(patience.body),
      orElse: () => {
        // What is still to come of it is not waited for.
        NodeHttpServerRequest.toServerResponse(request).setHeader("connection", "close")
        return Effect.fail(new BadRequest({ detail: "body: not received in time" }))
      }
    })
  )
  const problem = headerProblem(request.headers)
  if (problem !== undefined) return yield* new BadRequest({ detail: problem })
  if (
    incoming.rawHeaders.filter((name, i) => i % 2 === 0 && name.toLowerCase() === "content-type").length > 1
  ) {
    return yield* new BadRequest({ detail: "Content-Type: expected it once" })
  }
  const body = parseBody(bytes)
  return Result.isSuccess(body) ? body.success : yield* new BadRequest({ detail: body.failure })
})
