/**
 * The load for `SECONDS`, results as one JSON line, times in µs. Without `RATE` a closed loop: `CONNECTIONS` requests in
 * flight. With it an open one: so many a second, whatever becomes of them.
 * For the paced model every frame carries the time it was sent, so its delay is known too.
 * On plain sockets, because a client of HTTP would take more of the core that the stores are on.
 */
import { connect, type Socket } from "node:net"
import { ResponseReader } from "./responseReader.ts"

const env = (name: string): string => process.env[name] ?? ""
const target = new URL(env("URL"))
const headers: Readonly<Record<string, string>> = {
  "content-type": "application/json",
  authorization: `Bearer ${env("KEY")}`
}
const body = env("BODY")
const paced = env("PACED") !== ""
const connections = Number(env("CONNECTIONS"))

const request = Buffer.from(
  `POST ${target.pathname} HTTP/1.1\r\nhost: ${target.host}\r\n` +
    Object.entries(headers)
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join("") +
    `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
)

const began = performance.now()
const until = began + Number(env("SECONDS")) * 1000
/** This program is slow while it begins: what it sends then is not timed. */
const timedFrom = began + 1000
const firsts: Array<number> = []
const frames: Array<number> = []
const statuses = new Map<number, number>()
const stamp = /@(\d+)@/g
/** requests answered or lost */
const count = { done: 0 }
/** every connection there has been */
const opened: Array<Connection> = []

const timeFrames = (bytes: Buffer): void => {
  const now = process.hrtime.bigint()
  for (const match of bytes.toString("latin1").matchAll(stamp))
    frames.push(Number(now - BigInt(match[1] ?? 0)) / 1000)
}

/** A connection; `free` is called when it can take a request, also after it has been renewed. */
class Connection {
  readonly #free: (self: Connection) => void
  readonly #reader = new ResponseReader()
  #socket: Socket
  #startedAt = 0
  #waiting = false
  #first = true

  constructor(free: (self: Connection) => void) {
    this.#free = free
    this.#socket = this.#open()
  }

  send(): void {
    this.#waiting = true
    this.#first = true
    this.#reader.begin()
    this.#startedAt = performance.now()
    this.#socket.write(request)
  }

  #open(): Socket {
    const socket = connect({ host: "127.0.0.1", port: Number(target.port), noDelay: true })
    socket.on("data", (bytes: Buffer) => this.#read(bytes))
    // What is wrong is counted when the socket closes.
    socket.on("error", () => socket.destroy())
    socket.on("close", () => this.#closed())
    socket.on("connect", () => this.#free(this))
    return socket
  }

  #read(bytes: Buffer): void {
    if (!this.#waiting) return
    const ended = this.#reader.push(bytes)
    const timed = this.#startedAt > timedFrom
    if (this.#first && this.#reader.hasBody) {
      this.#first = false
      if (timed) firsts.push((performance.now() - this.#startedAt) * 1000)
    }
    if (paced && timed) timeFrames(bytes)
    if (ended) this.#answered(this.#reader.status)
  }

  #answered(status: number): void {
    this.#waiting = false
    count.done += 1
    statuses.set(status, (statuses.get(status) ?? 0) + 1)
    if (this.#reader.closes) this.#socket.destroy()
    else this.#free(this)
  }

  /** A body without a length ends with its connection; any other answer that is not whole is counted as status 0. */
  #closed(): void {
    if (this.#waiting) {
      this.#waiting = false
      count.done += 1
      const status = this.#reader.endsWithConnection ? this.#reader.status : 0
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    }
    // A server that is gone is not asked without a pause.
    setTimeout(() => (this.#socket = this.#open()), 10)
  }
}

const openConnection = (free: (connection: Connection) => void): void =>
  void opened.push(new Connection(free))

const wait = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

const closed = async () => {
  let running = connections
  await new Promise<void>((resolve) => {
    const next = (connection: Connection): void => {
      if (performance.now() < until) connection.send()
      else if ((running -= 1) === 0) resolve()
    }
    for (let n = 0; n < connections; n++) openConnection(next)
  })
}

/** Timers and not a busy loop, which would take the core from the stores: what is due by then is sent at once. */
const open = async (rate: number) => {
  const idle: Array<Connection> = []
  // A request that finds no idle connection has one opened for it; it takes that one, or another that is free before.
  let late = 0
  const free = (connection: Connection): void => {
    if (late === 0) return void idle.push(connection)
    late -= 1
    connection.send()
  }
  for (let n = 0; n < connections; n++) openConnection(free)
  let due = 0
  while (performance.now() < until) {
    for (; began + (due * 1000) / rate <= performance.now(); due++) {
      const connection = idle.pop()
      if (connection === undefined) {
        late += 1
        openConnection(free)
      } else connection.send()
    }
    await wait(0.5)
  }
  while (count.done < due) await wait(5)
}

const rate = Number(env("RATE"))
/** Answers that take longer than this beyond the time are not waited for. */
const graceMs = 20_000
await Promise.race([rate > 0 ? open(rate) : closed(), wait(until + graceMs - performance.now())])
const seconds = (performance.now() - began) / 1000
const { user, system } = process.cpuUsage()

const at = (values: ReadonlyArray<number>, share: number): number =>
  values[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0
for (const times of [firsts, frames]) times.sort((a, b) => a - b)

process.stdout.write(
  `${JSON.stringify({
    rps: count.done / seconds,
    requests: count.done,
    firstP50: at(firsts, 0.5),
    firstP99: at(firsts, 0.99),
    frameP50: at(frames, 0.5),
    frameP99: at(frames, 0.99),
    frames: frames.length,
    statuses: Object.fromEntries(statuses),
    loadShare: (user + system) / 1e6 / seconds
  })}\n`
)
process.exit(0)
