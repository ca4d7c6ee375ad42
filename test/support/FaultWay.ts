/** One direction of one proxied connection: what was read waits here until it is due, then is written on. */
import type { Socket } from "node:net"

/** What the network does to one direction, for all connections alike. */
export interface Weather {
  latencyMs: number
  slice: { readonly bytes: number; readonly delayMs: number } | undefined
  /** bytes are swallowed */
  hole: boolean
  /** bytes are kept until it ends */
  stalled: boolean
}

/** Where the bytes that somebody waits for begin and end in what was just read. */
export interface Found {
  readonly from: number
  readonly to: number
}

interface Waiting {
  readonly bytes: Buffer
  readonly since: number
  /** done instead of writing more, once the bytes are out */
  readonly after: "nothing" | "end" | "cut"
}

const highWater = 256 * 1024

export class FaultWay {
  readonly #queue: Array<Waiting> = []
  #queued = 0
  #running = false
  #discarding = false
  #wake: (() => void) | undefined
  /** something was lost on the way: what comes after would make no sense to the other side */
  torn = false

  readonly from: Socket
  readonly to: Socket
  readonly weather: Weather
  readonly #watch: (bytes: Buffer) => number | undefined
  readonly #cut: () => void

  constructor(options: {
    readonly from: Socket
    readonly to: Socket
    readonly weather: Weather
    /** Asked about every read; the answer is where to cut. */
    readonly watch: (bytes: Buffer) => number | undefined
    readonly cut: () => void
  }) {
    const { from } = options
    this.from = from
    this.to = options.to
    this.weather = options.weather
    this.#watch = options.watch
    this.#cut = options.cut
    from.on("data", (bytes) => this.#take(bytes))
    from.on("end", () => this.#put({ bytes: Buffer.alloc(0), since: performance.now(), after: "end" }))
  }

  /** The weather changed, or the receiver is ready. */
  wake(): void {
    this.#wake?.()
  }

  /** Everything that comes from now on goes nowhere. */
  discard(): void {
    this.#discarding = true
    this.from.resume()
  }

  /** What was taken goes out now, whatever the weather, and then the end. */
  finish(): void {
    for (const { bytes } of this.#queue.splice(0)) this.to.write(bytes)
    this.to.end()
    this.discard()
    this.wake()
  }

  #take(bytes: Buffer): void {
    if (this.#discarding) return
    if (this.weather.hole) {
      this.torn = true
      return
    }
    const cutAt = this.#watch(bytes)
    const since = performance.now()
    if (cutAt === undefined) return this.#put({ bytes, since, after: "nothing" })
    this.#put({ bytes: bytes.subarray(0, cutAt), since, after: "cut" })
    this.discard()
  }

  #put(waiting: Waiting): void {
    if (this.weather.hole) {
      this.torn = true
      return
    }
    this.#queue.push(waiting)
    this.#queued += waiting.bytes.length
    if (this.#queued > highWater) this.from.pause()
    // Nobody waits for it; what it does not survive ends with the sockets.
    if (!this.#running) void this.#run()
  }

  async #run(): Promise<void> {
    this.#running = true
    for (let next = this.#queue[0]; next !== undefined; next = this.#queue[0]) {
      const patience = next.since + this.weather.latencyMs - performance.now()
      if (this.weather.stalled) await this.#pause()
      else if (patience > 0) await this.#pause(patience)
      else {
        this.#queue.shift()
        await this.#write(next.bytes)
        this.#queued -= next.bytes.length
        if (this.#queued <= highWater && !this.#discarding) this.from.resume()
        if (next.after === "end") this.to.end()
        if (next.after === "cut") this.#cut()
      }
    }
    this.#running = false
  }

  /** Backpressure: waits for the receiver, so that what the receiver does not read is not read from the sender. */
  async #write(bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length && this.to.writable;) {
      const { slice } = this.weather
      const end = slice === undefined ? bytes.length : Math.min(bytes.length, at + slice.bytes)
      const ready = this.to.write(bytes.subarray(at, end))
      at = end
      if (!ready) {
        this.to.once("drain", () => this.wake())
        await this.#pause()
      }
      if (slice !== undefined && at < bytes.length) await this.#pause(slice.delayMs)
    }
  }

  #pause(ms?: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = ms === undefined ? undefined : setTimeout(() => this.wake(), ms)
      this.#wake = () => {
        clearTimeout(timer)
        this.#wake = undefined
        resolve()
      }
    })
  }
}
