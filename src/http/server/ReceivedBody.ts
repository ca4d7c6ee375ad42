/**
 * Collects a request body in one growing buffer from its first byte on. Node would keep an object of about 400 bytes
 * for each unread chunk, and a chunk may be one byte long.
 *
 * Before authentication only `earlyBytes` are read, or slightly more; then the connection is not read. Their memory comes from
 * `MemoryLedger.early`, later from the share of the request.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect } from "effect"
import { BadRequest, PayloadTooLarge, type ShuttingDown } from "../../domain/Errors.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"
import { headerOf } from "./headers.ts"
import type { BodyShare, EarlyShare, NoRoom } from "../../memory/MemoryLedger.ts"
import { stopReading } from "./stopReading.ts"

const earlyBytes = 16_384

/** Number of chunks that a body may have, and one more for each 64 bytes. No client needs more. */
const fewChunks = 1024
const chunkBytes = 64

export type BodyRefused = BadRequest | PayloadTooLarge | NoRoom | ShuttingDown

type Outcome = Effect.Effect<Buffer, BodyRefused>

export interface Reading {
  readonly limitBytes: number
  readonly share: BodyShare
  /** milliseconds until a body that is not complete is refused */
  readonly ms: number
  /** registers what must be called when this process stops, and returns what unregisters it */
  readonly onCut: (stop: (why: ShuttingDown) => void) => () => void
}

interface Reader extends Reading {
  readonly resume: (outcome: Outcome) => void
}

const hasBody = (incoming: IncomingMessage): boolean =>
  headerOf(incoming, "transfer-encoding") !== undefined ||
  (headerOf(incoming, "content-length") ?? "0") !== "0"

export class ReceivedBody {
  readonly #incoming: IncomingMessage
  readonly #response: ServerResponse
  readonly #early: EarlyShare
  #buffer: Buffer = Buffer.alloc(0)
  #size = 0
  #chunks = 0
  #resumeReading: (() => void) | undefined
  #reader: Reader | undefined
  #outcome: Outcome | undefined
  #whenSettled = () => {}

  /** Must be called in the tick in which Node emits the request. */
  constructor(incoming: IncomingMessage, response: ServerResponse, early: EarlyShare) {
    this.#incoming = incoming
    this.#response = response
    this.#early = early
    if (!hasBody(incoming)) {
      this.#outcome = Effect.succeed(this.#buffer)
      return
    }
    incoming.on("data", (chunk: Buffer) => this.#add(chunk))
    incoming.on("end", () => this.#settle(Effect.succeed(this.#buffer.subarray(0, this.#size))))
    // An error without a listener would end the process.
    for (const event of ["close", "error"]) incoming.on(event, () => this.#cut())
    response.once("close", () => early.close())
  }

  /** All bytes, or the reason why there are none. Their memory belongs to the caller, who may free it. */
  read(reading: Reading): Outcome {
    return Effect.callback((resume) => {
      this.#early.close()
      this.#reader = { ...reading, resume }
      const problem = this.#claim(this.#size, Math.max(this.#size, this.#buffer.length))
      if (problem !== undefined) this.#refuse(problem)
      if (this.#outcome !== undefined) {
        resume(problem === undefined ? this.#outcome : Effect.fail(problem))
        return undefined
      }
      let timer: NodeJS.Timeout | undefined
      process.nextTick(() => {
        // A small body came with its head, and needs no timer.
        if (this.#outcome === undefined && !this.#incoming.complete)
          timer = setTimeout(() => this.#fail("body: not received in time"), reading.ms)
      })
      let unregister = () => {}
      this.#whenSettled = () => {
        clearTimeout(timer)
        unregister()
      }
      unregister = reading.onCut((why) => this.#settle(Effect.fail(why)))
      this.#resumeReading?.()
      this.#resumeReading = undefined
      return Effect.sync(() => this.#cut())
    })
  }

  #add(chunk: Buffer): void {
    // The request was answered without the body; the rest of the body is discarded.
    if (this.#outcome !== undefined || this.#response.writableFinished) return
    const size = this.#size + chunk.length
    this.#chunks += 1
    if (this.#chunks > fewChunks + size / chunkBytes) {
      return this.#refuse(new BadRequest({ detail: "body: expected fewer chunks, of more bytes" }))
    }
    if (size > this.#buffer.length) {
      const limitBytes = this.#reader?.limitBytes ?? earlyBytes
      const capacity = Math.max(size, Math.min(2 * this.#size, limitBytes))
      const problem = this.#claim(size, capacity)
      if (problem !== undefined) return this.#refuse(problem)
      this.#grow(chunk, capacity)
    } else {
      chunk.copy(this.#buffer, this.#size)
      freeBuffer(chunk)
    }
    this.#size = size
    if (this.#reader === undefined && size >= earlyBytes) this.#stopReading()
  }

  /** Adds a chunk for which there is no room in the buffer. */
  #grow(chunk: Buffer, capacity: number): void {
    if (this.#size === 0) {
      this.#buffer = chunk
      return
    }
    const grown = Buffer.allocUnsafeSlow(capacity)
    this.#buffer.copy(grown, 0, 0, this.#size)
    chunk.copy(grown, this.#size)
    freeBuffer(this.#buffer)
    freeBuffer(chunk)
    this.#buffer = grown
  }

  /** Takes `capacity` bytes of memory for `bytes` of the body. Returns the refusal when that is not possible. */
  #claim(bytes: number, capacity: number): BodyRefused | undefined {
    if (this.#reader === undefined) return this.#early.grow(capacity)
    const { limitBytes, share } = this.#reader
    return bytes > limitBytes ? new PayloadTooLarge({ limitBytes }) : share.grow(capacity)
  }

  #stopReading(): void {
    if (this.#resumeReading !== undefined) return
    this.#resumeReading = stopReading(this.#incoming.socket)
    this.#response.once("finish", this.#resumeReading)
  }

  /** The rest of the body is not read before the request is answered. */
  #refuse(why: BodyRefused): void {
    this.#stopReading()
    this.#settle(Effect.fail(why))
  }

  /** The rest of the body does not come, or nobody waits for it. */
  #cut(): void {
    // An error takes long to make, and every request is closed in the end.
    if (this.#outcome === undefined) this.#fail("body: not received whole")
  }

  #fail(detail: string): void {
    this.#settle(Effect.fail(new BadRequest({ detail })))
  }

  #settle(outcome: Outcome): void {
    if (this.#outcome !== undefined) return
    this.#outcome = outcome
    this.#whenSettled()
    this.#reader?.resume(outcome)
    // The bytes of a complete body are kept in the outcome.
    this.#buffer = Buffer.alloc(0)
  }
}
