/**
 * A client's JSON body, checked before anything is believed of it (contract §5): content type, encoding, size to
 * the byte, UTF-8, nesting and keys. It is read only after its sender is known.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http"
import { Effect, Result } from "effect"
import { BadRequest, PayloadTooLarge } from "../domain/Errors.ts"
import type { Json } from "../domain/Inference.ts"
import { type Alarm, within } from "../infra/Alarm.ts"
import type { Desk } from "./Desk.ts"
import { isMisframed } from "./framing.ts"
import { headerCount } from "./headerCount.ts"
import { parseJson } from "./json.ts"

const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

const headerProblem = (headers: IncomingHttpHeaders): string | undefined => {
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

type Refused = BadRequest | PayloadTooLarge

/** All bytes of a body, straight from its events: no stream is made of what is read whole. */
const collect = (
  incoming: IncomingMessage,
  limitBytes: number,
  alarm: Alarm,
  ms: number
): Effect.Effect<Buffer, Refused> =>
  within<Buffer, Refused>(
    alarm,
    ms,
    (resume) => {
      const chunks: Array<Buffer> = []
      let size = 0
      const forget = () => {
        incoming.off("data", onData).off("end", onEnd).off("close", onCut).off("error", onCut)
      }
      const settle = (outcome: Effect.Effect<Buffer, Refused>) => {
        forget()
        // An error after this is nobody's news; without a listener it would be everybody's.
        incoming.on("error", () => undefined)
        resume(outcome)
      }
      const onData = (chunk: Buffer) => {
        size += chunk.byteLength
        if (size <= limitBytes) return void chunks.push(chunk)
        incoming.pause()
        settle(Effect.fail(new PayloadTooLarge({ limitBytes })))
      }
      const onEnd = () => settle(Effect.succeed(Buffer.concat(chunks, size)))
      const onCut = () => settle(Effect.fail(notWhole))
      if (incoming.readableAborted) settle(Effect.fail(notWhole))
      else incoming.on("data", onData).on("end", onEnd).on("close", onCut).on("error", onCut)
      return forget
    },
    () => Effect.fail(new BadRequest({ detail: "body: not received in time" }))
  )

const notWhole = new BadRequest({ detail: "body: not received whole" })

const problemOf = (incoming: IncomingMessage): string | undefined =>
  headerProblem(incoming.headers) ??
  (headerCount(incoming, "content-type") > 1 ? "Content-Type: expected it once" : undefined)

export const readBody = (
  { alarm, patience }: Pick<Desk, "alarm" | "patience">,
  incoming: IncomingMessage,
  response: ServerResponse,
  limitBytes: number
): Effect.Effect<Body, Refused> =>
  Effect.suspend((): Effect.Effect<Body, Refused> => {
    if (isMisframed(incoming)) {
      return new BadRequest({ detail: "Transfer-Encoding: expected nothing but chunked" })
    }
    const declared = Number(incoming.headers["content-length"] ?? 0)
    if (declared > limitBytes) return new PayloadTooLarge({ limitBytes })
    // Said only to those whose body is wanted (RFC 9110 §10.1.1); Node hands out such a request without saying it.
    if (incoming.headers.expect !== undefined && incoming.httpVersion === "1.1") response.writeContinue()
    return collect(incoming, limitBytes, alarm, patience.body).pipe(
      Effect.flatMap((bytes): Effect.Effect<Body, Refused> => {
        const problem = problemOf(incoming)
        if (problem !== undefined) return new BadRequest({ detail: problem })
        const body = parseBody(bytes)
        return Result.isSuccess(body)
          ? Effect.succeed(body.success)
          : new BadRequest({ detail: body.failure })
      }),
      Effect.tapError(() => {
        // What is still to come of it is not waited for.
        if (!incoming.complete && !response.headersSent) response.setHeader("connection", "close")
        return Effect.void
      })
    )
  })
