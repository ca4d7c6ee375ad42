/**
 * Collects a request body in one growing buffer from its first byte on. Node would keep an object of about 400 bytes
 * for each unread chunk, and a chunk may be one byte long.
 *
 * Before authentication only `earlyBytes` are read, or slightly more; then the connection is paused. Bodies that are not
 * small take their memory from `RequestBodies.early`.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Result } from "effect"
import { BadRequest, PayloadTooLarge } from "../../domain/Errors.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"
import { headerOf } from "./headers.ts"
import type { EarlyShare, NoRoom, Share } from "./RequestBodies.ts"

const earlyBytes = 16_384

/** Number of chunks that a body may have, and one more for each 64 bytes. No client needs more. */
const fewChunks = 1024
const chunkBytes = 64

export type BodyRefused = BadRequest | PayloadTooLarge | NoRoom

/** All bytes, or the reason why there are none. */
export type BodyOutcome = Result.Result<Buffer, BodyRefused>

export interface ReceivedBody {
  /**
   * Calls `resume` once, with all bytes or with the reason why there are none. Returns a function that stops waiting. The
   * memory of the bytes belongs to the caller, who may free it.
   */
  read(limitBytes: number, share: Share, resume: (outcome: BodyOutcome) => void): () => void
}

interface Reader {
  readonly limitBytes: number
  readonly share: Share
  readonly resume: (outcome: BodyOutcome) => void
}

const none: Buffer = Buffer.alloc(0)
const incomplete = new BadRequest({ detail: "body: not received whole" })
const tooManyChunks = new BadRequest({ detail: "body: expected fewer chunks, of more bytes" })

const noBody: ReceivedBody = {
  read: (_limitBytes, _share, resume) => {
    resume(Result.succeed(none))
    return () => undefined
  }
}

const hasBody = (incoming: IncomingMessage): boolean =>
  headerOf(incoming, "transfer-encoding") !== undefined ||
  (headerOf(incoming, "content-length") ?? "0") !== "0"

/**
 * Stops reading the connection of `incoming` until the returned function is called or `response` is finished. Node resumes
 * a connection by itself whenever code reads the request, so every resume is undone.
 */
const stopReading = ({ socket }: IncomingMessage, response: ServerResponse): (() => void) => {
  const pause = (): void => void socket.pause()
  const resumeReading = (): void => {
    socket.off("resume", pause)
    response.off("finish", resumeReading)
    socket.resume()
  }
  pause()
  socket.on("resume", pause)
  response.once("finish", resumeReading)
  return resumeReading
}

/** Must be called in the tick in which Node emits the request. */
export const receiveBody = (
  incoming: IncomingMessage,
  response: ServerResponse,
  early: EarlyShare
): ReceivedBody => {
  if (!hasBody(incoming)) return noBody
  let buffer: Buffer = none
  let size = 0
  let chunks = 0
  let resumeReading: (() => void) | undefined
  let reader: Reader | undefined
  /** the result, once there is one */
  let outcome: BodyOutcome | undefined

  const settle = (result: BodyOutcome): void => {
    if (outcome !== undefined) return
    outcome = result
    buffer = none
    reader?.resume(result)
  }

  const fail = (why: BodyRefused): void => {
    early.close()
    settle(Result.fail(why))
  }

  /** Stops reading the body. */
  const refuse = (why: BodyRefused): void => {
    resumeReading ??= stopReading(incoming, response)
    fail(why)
  }

  /** Takes `capacity` bytes of memory for `bytes` of the body. Returns the refusal when that is not possible. */
  const claim = (bytes: number, capacity: number): BodyRefused | undefined => {
    if (reader === undefined) return early.grow(capacity)
    return bytes > reader.limitBytes
      ? new PayloadTooLarge({ limitBytes: reader.limitBytes })
      : reader.share.grow(capacity)
  }

  const onData = (chunk: Buffer): void => {
    // The request was answered without the body; the rest of the body is discarded.
    if (outcome !== undefined || response.writableFinished) return
    const needed = size + chunk.length
    chunks += 1
    if (chunks > fewChunks + needed / chunkBytes) return refuse(tooManyChunks)
    const grows = needed > buffer.length
    const doubled = Math.min(2 * size, reader?.limitBytes ?? earlyBytes)
    const capacity = grows ? Math.max(needed, doubled) : buffer.length
    const problem = grows ? claim(needed, capacity) : undefined
    if (problem !== undefined) return refuse(problem)
    if (size === 0) buffer = chunk
    else {
      if (grows) {
        const grown = Buffer.allocUnsafeSlow(capacity)
        buffer.copy(grown, 0, 0, size)
        freeBuffer(buffer)
        buffer = grown
      }
      chunk.copy(buffer, size)
      freeBuffer(chunk)
    }
    size = needed
    if (reader === undefined && size >= earlyBytes) resumeReading ??= stopReading(incoming, response)
  }
  const onEnd = (): void => {
    // The body is kept until it is read, or the request is answered without it.
    if (reader === undefined) response.once("close", () => early.close())
    settle(Result.succeed(buffer.subarray(0, size)))
  }
  // Keep an error listener: a late error event would crash the process.
  const onCut = (): void => {
    if (outcome === undefined) fail(incomplete)
  }
  incoming.on("data", onData).on("end", onEnd).on("close", onCut).on("error", onCut)

  return {
    read: (limitBytes, share, resume) => {
      reader = { limitBytes, share, resume }
      early.close()
      const problem = claim(size, Math.max(size, buffer.length))
      if (outcome !== undefined) resume(problem === undefined ? outcome : Result.fail(problem))
      else if (problem !== undefined) refuse(problem)
      else {
        resumeReading?.()
        resumeReading = undefined
      }
      return () => fail(incomplete)
    }
  }
}
