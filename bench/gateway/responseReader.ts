/** Reads answers of HTTP/1.1 from a connection, as far as a benchmark needs it: the status, and where the body ends. */
export class ResponseReader {
  status = 0
  /** whether a byte of the body has come */
  hasBody = false
  /** whether the server closes the connection after this answer */
  closes = false
  #head: Buffer | undefined
  #left = 0
  #kind: "head" | "length" | "chunked" | "connection" = "head"
  /** of a chunk's size, what has been read of its line */
  #line = ""
  #lastChunk = false

  /** A new answer is expected. */
  begin(): void {
    this.status = 0
    this.hasBody = false
    this.closes = false
    this.#head = undefined
    this.#kind = "head"
    this.#left = 0
    this.#line = ""
    this.#lastChunk = false
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
      return this.#body(read.subarray(blank + 4))
    }
    const length = /\r\ncontent-length: *(\d+)\r\n/i.exec(head)?.[1]
    this.#kind = length === undefined ? "connection" : "length"
    this.#left = Number(length ?? 0)
    return this.#body(read.subarray(blank + 4))
  }

  #body(bytes: Buffer): boolean {
    if (bytes.length > 0) this.hasBody = true
    if (this.#kind === "connection") return false
    if (this.#kind === "chunked") return this.#chunks(bytes)
    this.#left -= bytes.length
    return this.#left <= 0
  }

  /** A line with the size of a chunk, the chunk, a line break; the last has no bytes. There are no trailers. */
  #chunks(bytes: Buffer): boolean {
    for (let at = 0; at < bytes.length;) {
      if (this.#left > 0) {
        const step = Math.min(this.#left, bytes.length - at)
        this.#left -= step
        at += step
        if (this.#left === 0 && this.#lastChunk) return true
        continue
      }
      const end = bytes.indexOf(10, at)
      this.#line += bytes.toString("latin1", at, end < 0 ? bytes.length : end)
      if (end < 0) return false
      at = end + 1
      const size = Number.parseInt(this.#line, 16)
      this.#line = ""
      this.#lastChunk = size === 0
      this.#left = size + 2
    }
    return false
  }
}
