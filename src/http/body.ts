/**
 * Reads a client's JSON body, after authentication. It checks content type, encoding, exact size, UTF-8, nesting and
 * duplicate keys before anything else uses the body.
 */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http"
import { Effect, Result } from "effect"
import { BadRequest, type FreeWorkExhausted, PayloadTooLarge } from "../domain/Errors.ts"
import { callbackWithTimeout, makeTimer } from "../infra/time.ts"
import type { Exchange } from "./Exchange.ts"
import { ClientTimeouts } from "./server/ClientTimeouts.ts"
import { headerCount, isMisframed } from "./server/framing.ts"
import { type Body, parseBody } from "./dialect/parseBody.ts"
import type { BodyRefused } from "./server/ReceivedBody.ts"
import type { Share } from "./server/RequestBodies.ts"

const jsonType = /^application\/json\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?;?\s*$/i

const headerProblem = (headers: IncomingHttpHeaders): string | undefined => {
  // LiteLLM's Ollama clients send no type. Their body is parsed as JSON.
  if (!jsonType.test(headers["content-type"] ?? "application/json"))
    return "Content-Type: expected application/json"
  const encoding = headers["content-encoding"]
  if (encoding !== undefined && encoding.toLowerCase() !== "identity") {
    return "Content-Encoding: expected none"
  }
  return undefined
}

const notInTime = new BadRequest({ detail: "body: not received in time" })

const problemOf = (incoming: IncomingMessage): string | undefined =>
  headerProblem(incoming.headers) ??
  (headerCount(incoming, "content-type") > 1 ? "Content-Type: expected it once" : undefined)

/** `mayParse` is called when the body is in, and may refuse it before it is parsed. */
export const makeReadBody = Effect.map(
  Effect.all([makeTimer, ClientTimeouts]),
  ([timer, timeouts]) =>
    (
      { incoming, received, response }: Exchange,
      share: Share,
      limitBytes: number,
      mayParse: (bytes: number) => Effect.Effect<void, FreeWorkExhausted>
    ): Effect.Effect<Body, BodyRefused | FreeWorkExhausted> =>
      Effect.suspend((): Effect.Effect<Body, BodyRefused | FreeWorkExhausted> => {
        if (isMisframed(incoming)) {
          return new BadRequest({ detail: "Transfer-Encoding: expected nothing but chunked" })
        }
        const declared = Number(incoming.headers["content-length"] ?? 0)
        if (declared > limitBytes) return new PayloadTooLarge({ limitBytes })
        // 100 Continue is sent only when the body will be read (RFC 9110, section 10.1.1). Node does not send it here.
        if (incoming.headers.expect !== undefined && incoming.httpVersion === "1.1") response.writeContinue()
        return callbackWithTimeout<Buffer, BodyRefused>(
          timer,
          timeouts.body,
          (resume) => received.read(limitBytes, share, resume),
          () => Effect.fail(notInTime)
        ).pipe(
          Effect.tap(({ byteLength }) => mayParse(byteLength)),
          Effect.flatMap((bytes): Effect.Effect<Body, BodyRefused> => {
            const problem = problemOf(incoming)
            if (problem !== undefined) return new BadRequest({ detail: problem })
            const body = parseBody(bytes)
            return Result.isSuccess(body)
              ? Effect.succeed(body.success)
              : new BadRequest({ detail: body.failure })
          }),
          Effect.tapError(() => {
            // The rest of the body is not read.
            if (!incoming.complete && !response.headersSent) response.setHeader("connection", "close")
            return Effect.void
          })
        )
      })
)
