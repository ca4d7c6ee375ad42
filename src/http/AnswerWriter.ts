/**
 * Writes a streamed answer to its client, at the speed of the model server. What the client has not taken counts as unread memory
 * (`MemoryLedger.ts`), and goes out in pieces, so that the bytes that the kernel took show whether a client reads, however large the
 * answer is.
 */
import type { ServerResponse } from "node:http"
import { Effect } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"

/** Bytes of one write. A client that takes fewer in `CLIENT_STALL_TIMEOUT_MS` does not read. */
export const pieceBytes = 65_536

const empty = Buffer.alloc(0)

export class AnswerWriter {
  readonly #response: ServerResponse
  readonly #share: AnswerShare
  readonly #kept: () => number
  /** what waits until the client has taken what is before it: bytes, and texts behind them */
  #bytes: Buffer = empty
  #texts: Array<string> = []
  #textBytes = 0
  #whenTaken: (() => void) | undefined
  /** nothing was written since the last look (`breakSilence`) */
  #isSilent = true

  /** `kept`: bytes of memory of what the encoder keeps */
  constructor(response: ServerResponse, share: AnswerShare, kept: () => number = () => 0) {
    this.#response = response
    this.#share = share
    this.#kept = kept
    response.on("drain", () => this.#writeWaiting())
  }

  /** Never waits. After the client has left, nothing is written. */
  write(text: string): void {
    if (text !== "") {
      this.#isSilent = false
      this.#texts.push(text)
    }
    this.#textBytes += Buffer.byteLength(text)
    this.#writeWaiting()
  }

  /** Writes a text when nothing was written since this was called last, and nothing waits for the client. */
  breakSilence(text: () => string): void {
    if (this.#isSilent && this.#isTaken) this.write(text())
    this.#isSilent = true
  }

  /** Waits until the client has taken everything. */
  readonly taken: Effect.Effect<void> = Effect.callback((resume) => {
    const go = () => resume(Effect.void)
    if (this.#isTaken) go()
    else this.#whenTaken = go
  })

  get #isTaken(): boolean {
    return this.#bytes.length + this.#textBytes === 0 && !this.#response.writableNeedDrain
  }

  #writeWaiting(): void {
    const response = this.#response
    while (!response.writableNeedDrain && !response.destroyed) {
      if (this.#bytes.length === 0) {
        if (this.#textBytes === 0) break
        this.#bytes = Buffer.from(this.#texts.join(""))
        this.#texts = []
        this.#textBytes = 0
      }
      response.write(this.#bytes.subarray(0, pieceBytes))
      this.#bytes = this.#bytes.subarray(pieceBytes)
    }
    this.#share.hold(this.#bytes.length + this.#textBytes + response.writableLength + this.#kept())
    if (!this.#isTaken) return
    const go = this.#whenTaken
    this.#whenTaken = undefined
    // The fiber that waits goes on before this returns, and may wait again.
    go?.()
  }
}
