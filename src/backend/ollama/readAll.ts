/**
 * Reads the whole body of a response. Its bytes are taken in the callback of the socket: a fiber waits only for the end, for
 * a failure, and for memory. So an answer of half a megabyte, which comes in eight reads, resumes it once.
 */
import { Effect } from "effect"
import { BackendFailed, type Unavailable } from "../../domain/Errors.ts"
import { ByteList } from "../../infra/ByteList.ts"
import type { TransportError, UpstreamCall } from "./UpstreamCall.ts"

/** The memory that an answer is collected in. */
export interface Room {
  /** Takes memory for `bytes` in total. Returns false when there is none now. */
  tryCollect(bytes: number): boolean
  /** The same, but waits for it. */
  collect(bytes: number): Effect.Effect<void, Unavailable>
}

/** The response that is read. */
export type Response = Pick<UpstreamCall, "abort" | "isOver" | "onReady" | "take" | "takeWaiting">

/** Fails beyond `limit` bytes. While there is no memory for more, nothing is read. */
export const readAll = (
  call: Response,
  limit: number,
  room: Room
): Effect.Effect<ByteList, TransportError | BackendFailed | Unavailable> => {
  type Step = Effect.Effect<ByteList, TransportError | BackendFailed | Unavailable>
  const read = new ByteList()
  const push = (chunks: ReadonlyArray<Buffer>): void => {
    for (const chunk of chunks) read.push(chunk)
  }
  /** Takes what waits. Returns the next step when it is one for a fiber. */
  const poll = (): Step | undefined => {
    for (let chunks = call.takeWaiting(); chunks !== undefined; chunks = call.takeWaiting()) {
      const taken = chunks
      const more = taken.reduce((sum, { length }) => sum + length, 0)
      if (read.size + more > limit) {
        const fault = new BackendFailed({
          fault: "protocol",
          cause: new Error(`answer of more than ${limit} bytes`)
        })
        call.abort(fault)
        return fault
      }
      const needed = read.capacityWith(more)
      if (!room.tryCollect(needed)) {
        return Effect.flatMap(room.collect(needed), () => {
          push(taken)
          return reading
        })
      }
      push(taken)
    }
    // An error, or no bytes for the end.
    return call.isOver ? Effect.as(call.take(), read) : undefined
  }
  const reading: Step = Effect.callback((resume) => {
    const wake = (): void => {
      // Taking bytes lets the connection be read, which may bring more of them at once. They come after those taken.
      call.onReady(undefined)
      const next = poll()
      if (next === undefined) call.onReady(wake)
      else resume(next)
    }
    wake()
    return Effect.sync(() => call.onReady(undefined))
  })
  return reading
}
