/**
 * Handles pipelined requests: those that a client sends before it has the answers to earlier ones. The app starts a
 * request only after the answer before it is over, and few may wait. Node itself emits each request as soon as it is
 * parsed.
 *
 * *Details* At most `maxWaiting` requests of a connection wait. Then the connection is not read until one fewer
 * waits. More requests may have come in the same read: they are dropped, and the last request before them is answered
 * with `Connection: close`. When more than `maxDropped` are dropped, the connection is destroyed at once, because
 * Node keeps the objects of each until the connection ends.
 *
 * *Gotchas* While a connection is not read, the gateway notices only at its next write that the client has left.
 */
import { IncomingMessage, Server, type ServerOptions, ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Effect } from "effect"
import { makeAttached } from "../../infra/v8/Attached.ts"

/** Number of requests of one connection that may wait, in addition to the running one. */
export const maxWaiting = 16
/** Number of requests of one connection that may be dropped before the answers ahead of them are cut too. */
export const maxDropped = 48

interface Waiting {
  readonly response: ServerResponse
  /** whether its turn has come */
  hasTurn: boolean
  /** resumes the app, once it waits for its turn */
  begin: ((turn: Effect.Effect<void>) => void) | undefined
}

interface Line {
  readonly socket: Socket
  /** the answer that is being made */
  current: ServerResponse | undefined
  readonly waiting: Array<Waiting>
  readonly pause: () => void
  paused: boolean
  dropped: number
}

const lines = makeAttached<Socket, Line>()
const places = makeAttached<IncomingMessage, Waiting>()

/** Node resumes a connection by itself whenever code reads a request of it. */
const stopReading = (line: Line): void => {
  if (line.paused) return
  line.paused = true
  line.pause()
  line.socket.on("resume", line.pause)
}

const resumeReading = (line: Line): void => {
  if (!line.paused || line.dropped > 0) return
  line.paused = false
  line.socket.off("resume", line.pause)
  line.socket.resume()
}

/** Node does this too, but not after a CONNECT has removed its listeners. Doing it twice is harmless. */
const closeWaiting = ({ waiting }: Line): void => {
  for (const { response } of waiting.splice(0)) response.destroy()
}

const makeLine = (socket: Socket): Line => {
  const line: Line = {
    socket,
    current: undefined,
    waiting: [],
    pause: () => void socket.pause(),
    paused: false,
    dropped: 0
  }
  lines.set(socket, line)
  socket.once("close", () => closeWaiting(line))
  return line
}

const answerCurrent = (line: Line, response: ServerResponse): void => {
  line.current = response
  response.once("close", () => {
    line.current = undefined
    // The next request would get no answer; it ends with the connection.
    if (!line.socket.writable) return
    const next = line.waiting.shift()
    if (next === undefined) return
    answerCurrent(line, next.response)
    resumeReading(line)
    next.hasTurn = true
    next.begin?.(Effect.void)
  })
}

const drop = (line: Line, request: IncomingMessage): void => {
  line.dropped += 1
  stopReading(line)
  // The part of its body that has arrived is discarded.
  request.resume()
  const last = line.waiting.at(-1)?.response ?? line.current
  if (line.dropped > maxDropped || last === undefined) line.socket.destroy()
  else if (!last.headersSent) last.setHeader("connection", "close")
}

/** Adds a request to the line of its connection. Returns false when it is dropped. */
const enter = (request: IncomingMessage, response: ServerResponse): boolean => {
  const line = lines.get(request.socket) ?? makeLine(request.socket)
  if (line.dropped > 0 || line.waiting.length >= maxWaiting) {
    drop(line, request)
    return false
  }
  if (line.current === undefined) {
    answerCurrent(line, response)
    return true
  }
  const place: Waiting = { response, hasTurn: false, begin: undefined }
  places.set(request, place)
  line.waiting.push(place)
  if (line.waiting.length === maxWaiting) stopReading(line)
  return true
}

/** Waits until all answers before the one to `request` are over. It is interrupted when the connection ends first. */
export const waitForTurn = (request: IncomingMessage): Effect.Effect<void> => {
  const place = places.get(request)
  if (place === undefined || place.hasTurn) return Effect.void
  // The app begins in a region that cannot be interrupted.
  return Effect.interruptible(
    Effect.callback<void>((resume) => {
      place.begin = resume
    })
  )
}

/** A server that does not emit dropped requests. */
export class PipeliningServer extends Server {
  readonly #refused: () => void

  /** `refused` is called once for each connection on which a request is dropped. */
  constructor(options: ServerOptions, refused: () => void) {
    super(options)
    this.#refused = refused
  }

  override emit(event: string, ...args: Array<unknown>): boolean {
    if (event !== "request" && event !== "checkContinue") return super.emit(event, ...args)
    const [request, response] = args
    if (!(request instanceof IncomingMessage) || !(response instanceof ServerResponse)) {
      return super.emit(event, ...args)
    }
    if (enter(request, response)) return super.emit(event, request, response)
    if (lines.get(request.socket)?.dropped === 1) this.#refused()
    return true
  }
}
