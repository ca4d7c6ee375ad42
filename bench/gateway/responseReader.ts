/** Reads answers of HTTP/1.1 from a connection, as far as a benchmark needs it: the status, and where the body ends. */
const chunkedEnd = Buffer.from("\r\n0\r\n\r\n")

export class ResponseReader {
  status = 0
  /** whether a byte of the body has come */
  hasBody = false
  /** whether the server closes the connection after this answer */
  closes = false
  #head: Buffer | undefined
  #left = 0
  #kind: "head" | "length" | "chunked" | "connection" = "head"
  /** the last bytes of a chunked body, its end may come in two reads */
  #tail: Buffer = Buffer.alloc(0)

  /** A new answer is expected. */
  begin(): void {
    this.status = 0
    this.hasBody = false
    this.closes = false
    this.#head = undefined
    this.#kind = "head"
    this.#tail = Buffer.alloc(0)
  }

  /** whether the body ends only when the server closes the connection */
  get endsWithConnection(): boolean {
    return this.#kind === "connection"
  }

  /** Takes what was read; true when the answer is whole. */
  push(bytes: Buffer): boolean {
    if (this.#kind !== "head") return this.#body(bytes)
    const read = this.#head === undefined ? bytes : Buffer.concat([this.#head, bytes])
    const blank = read.indexOf("\r\n\r\n")
    if (blank < 0) {
      this.#head = read
      return false
    }
    const head = read.toString("latin1", 0, blank + 2)
    this.status = Number(head.slice(9, 12))
    this.closes = /\r\nconnection: *close\r\n/i.test(head)
    if (/\r\ntransfer-encoding: *chunked\r\n/i.test(head)) {
      this.#kind = "chunked"
      // The line that ends the head stands before the first chunk, which may be the last.
      return this.#body(read.subarray(blank + 2), 2)
    }
    const length = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1]
    this.#kind = length === undefined ? "connection" : "length"
    this.#left = Number(length ?? 0)
    return this.#body(read.subarray(blank + 4))
  }

  #body(bytes: Buffer, before = 0): boolean {
    if (bytes.length > before) this.hasBody = true
    if (this.#kind === "connection") return false
    if (this.#kind === "length") {
      this.#left -= bytes.length
      return this.#left <= 0
    }
    const length = chunkedEnd.length
    const tail =
      bytes.length >= length ? bytes.subarray(-length) : Buffer.concat([this.#tail, bytes]).subarray(-length)
    this.#tail = tail
    return tail.equals(chunkedEnd)
  }
}
