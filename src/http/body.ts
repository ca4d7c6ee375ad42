/**
 * Reads a client's JSON body, after authentication. It checks content type, coding, exact size, UTF-8, nesting and duplicate keys before
 * anything else uses the body.
 */
import type { IncomingMessage } from "node:http"
import { MIMEType } from "node:util"
import { Effect, Result } from "effect"
import { BadRequest, type Decided, PayloadTooLarge, refuse } from "../domain/Errors.ts"
import { Drain } from "../infra/Drain.ts"
import type { Exchange } from "./Exchange.ts"
import { ClientTimeouts } from "./server/ClientTimeouts.ts"
import { clientHeaders, headerOf, headerValues, isMisframed } from "./server/headers.ts"
import { type Body, parseBody } from "./dialect/strictJson.ts"
import { type Coding, isCoding } from "./unpack.ts"
import type { BodyRefused } from "./server/ReceivedBody.ts"
import type { BodyShare, NoRoom, RequestShare } from "../memory/MemoryLedger.ts"

const json = "application/json"
/** What `curl -d` sends. */
const form = "application/x-www-form-urlencoded"

/** Whether a `Content-Type` is one that clients send with JSON, in UTF-8, without other parameters. */
const isJson = (type: string): boolean => {
  if (type === json) return true
  // What is behind the part that is read may be another charset.
  if (type.length >= clientHeaders["content-type"]) return false
  const parsed = Result.getOrUndefined(Result.try(() => new MIMEType(type)))
  // The parser keeps the first of two parameters of one name.
  if (parsed === undefined || type.indexOf("=") !== type.lastIndexOf("=")) return false
  if (parsed.essence !== json && parsed.essence !== form) return false
  return parsed.params
    .entries()
    .every(([name, value]) => name === "charset" && value.toLowerCase() === "utf-8")
}

const problemOf = (incoming: IncomingMessage): string | undefined => {
  // LiteLLM's Ollama clients send no type. Their body is parsed as JSON.
  if (!isJson(headerOf(incoming, "content-type") ?? json)) {
    return "Content-Type: expected application/json"
  }
  return headerValues(incoming, "content-type").length > 1 ? "Content-Type: expected it once" : undefined
}

/** How a body is packed; undefined: it is not. Two codings are none that is known. */
export const codingOf = (incoming: IncomingMessage): Decided<Coding | undefined> => {
  const name = (headerOf(incoming, "content-encoding") ?? "identity").toLowerCase()
  if (name === "identity") return Result.succeed(undefined)
  return isCoding(name)
    ? Result.succeed(name)
    : refuse("Content-Encoding: expected one of gzip, deflate and zstd, or none")
}

/** The body of a request whose bytes are in. Its memory is taken from `share` before it is parsed. */
export const bodyOf = (
  incoming: IncomingMessage,
  bytes: Buffer,
  share: RequestShare
): Result.Result<Body, BadRequest | NoRoom> => {
  const problem = problemOf(incoming)
  if (problem !== undefined) return refuse(problem)
  return Result.mapError(parseBody(bytes, share.decode), (failure) =>
    typeof failure === "string" ? new BadRequest({ detail: failure }) : failure
  )
}

/** Why the body of a request is not received at all. */
const refusalOf = (incoming: IncomingMessage, limitBytes: number): BodyRefused | undefined => {
  if (isMisframed(incoming)) {
    return new BadRequest({ detail: "Transfer-Encoding: expected nothing but chunked, in HTTP/1.1" })
  }
  const declared = Number(headerOf(incoming, "content-length") ?? 0)
  return declared > limitBytes ? new PayloadTooLarge({ limitBytes }) : undefined
}

/** Waits for the bytes of a body. */
export const makeReceive = Effect.map(
  Effect.all([ClientTimeouts, Drain]),
  ([timeouts, drain]) =>
    (
      { context, incoming, received, response }: Exchange,
      share: BodyShare,
      limitBytes: number
    ): Effect.Effect<Buffer, BodyRefused> => {
      const { arrival, caller } = context
      const of = caller && { arrival, caller }
      const refusal = refusalOf(incoming, limitBytes)
      // 100 Continue is sent only when the body will be read (RFC 9110, section 10.1.1). Node does not send it here.
      if (
        refusal === undefined &&
        headerOf(incoming, "expect") !== undefined &&
        incoming.httpVersion === "1.1"
      )
        response.writeContinue()
      const read =
        refusal === undefined
          ? received.read({ limitBytes, share, ms: timeouts.body, onCut: (stop) => drain.onCut(stop, of) })
          : Effect.fail(refusal)
      // The rest of the body is not read.
      return Effect.tapError(read, () =>
        Effect.sync(() => {
          if (!incoming.complete && !response.headersSent) response.setHeader("connection", "close")
        })
      )
    }
)
