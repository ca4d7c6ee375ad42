/**
 * The text of a call of the model server: the fields of the client, and room for those that the gateway adds when it makes the call.
 * So the body of a request is in memory once, as UTF-8 outside of V8's heap.
 */
import type { Schema } from "effect"

type JsonObject = Schema.JsonObject

/** Bytes of the usual fields of the gateway: model, options, bounds. */
const room = 512

export class CallText {
  #bytes: Buffer
  /** of the client's fields, without the brace that closes them */
  readonly #size: number

  constructor(fields: JsonObject) {
    const text = JSON.stringify(fields)
    this.#size = Buffer.byteLength(text) - 1
    this.#bytes = Buffer.allocUnsafe(this.#size + room)
    this.#bytes.write(text)
  }

  /** bytes of memory */
  get bytes(): number {
    return this.#bytes.length
  }

  /** The text of all fields. It is good until the next call of `with`: a call that is made again has other ones. */
  with(more: JsonObject): Buffer {
    const rest = JSON.stringify(more)
    const tail = this.#size === 1 ? rest.slice(1) : `,${rest.slice(1)}`
    const end = this.#size + Buffer.byteLength(tail)
    if (end > this.#bytes.length) this.#bytes = Buffer.concat([this.#bytes.subarray(0, this.#size)], end)
    this.#bytes.write(tail, this.#size)
    return this.#bytes.subarray(0, end)
  }

  /** The fields of the client, as one JSON object. */
  get json(): string {
    return `${this.#bytes.toString("utf8", 0, this.#size)}}`
  }
}
