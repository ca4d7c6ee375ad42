/**
 * From a `Permit` to the answer: calls the backend and meters what comes back. The stream is the backend's own,
 * except that it holds more tokens as it goes, is ended with `length` when nothing remains to hold, and says in its last
 * frame what it is charged. Whoever encodes that frame concludes the exchange before the client sees it.
 */
import { Array as Arr, Cause, Effect, type Pull, type Scope, type Stream } from "effect"
import type { Refused } from "../backend/faults.ts"
import type { BackendFailed, ShuttingDown } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Permit } from "../domain/Permit.ts"
import * as YoungStream from "../infra/YoungStream.ts"
import type { Calling } from "./calling.ts"
import type { Exchange } from "./Exchange.ts"
import type { Hold } from "./Hold.ts"
import type { Ports } from "./Ports.ts"
import { suited } from "./suits.ts"

type Frames = Arr.NonEmptyReadonlyArray<Frame>

/** Ends with the one frame that is `done`, as the last of its chunk. */
export type Answer = Stream.Stream<Frame, BackendFailed | ShuttingDown>

export const makeForward = ({ backend, metrics, nowMs, promptLog }: Ports, calling: Calling) => {
  /** What of each chunk goes on to the client, up to the one that ends the exchange; a step of a pull, not a stage. */
  const metered = (
    frames: Stream.Stream<Frame, BackendFailed | ShuttingDown>,
    exchange: Exchange,
    hold: Hold
  ): Answer =>
    YoungStream.transformPull(frames, (pull) => {
      let over = false
      const metered = (chunk: Frames): Frames => {
        const passed = bounded(exchange, hold, chunk)
        over = Arr.lastNonEmpty(passed).done
        return passed
      }
      const next = Effect.flatMap(pull, (chunk): Effect.Effect<Frames> => {
        for (const frame of chunk) if (bearsOutput(frame)) exchange.frames += 1
        return hold.short && !Arr.lastNonEmpty(chunk).done
          ? Effect.map(hold.extend, () => metered(chunk))
          : Effect.succeed(metered(chunk))
      })
      return Effect.succeed(
        Effect.suspend((): Pull.Pull<Frames, BackendFailed | ShuttingDown> => (over ? Cause.done() : next))
      )
    })

  const bounded = (exchange: Exchange, hold: Hold, chunk: Frames): Frames => {
    const last = Arr.lastNonEmpty(chunk)
    if (last.done) {
      exchange.final = last
      exchange.transcript?.add(chunk)
      return Arr.append(Arr.initNonEmpty(chunk), asCharged(last, exchange))
    }
    if (!hold.spent) {
      exchange.transcript?.add(chunk)
      return chunk
    }
    const kept = withoutLast(chunk, hold.excess)
    exchange.frames -= chunk.filter(bearsOutput).length - kept.filter(bearsOutput).length
    exchange.transcript?.add(kept)
    const end: Frame = { createdAt: last.createdAt, text: "", done: true, doneReason: "length" }
    return Arr.append(kept, asCharged(end, exchange))
  }

  return Effect.fnUntraced(function* (
    exchange: Exchange,
    permit: Permit,
    request: InferenceRequest,
    maxTokens: number
  ): Effect.fn.Return<Answer, Refused, Scope.Scope> {
    exchange.transcript = promptLog.transcript(permit.caller, exchange.arrival, request)
    // What remained at admission bounds the answer too, whatever the client asked for (contract §6).
    const bound = Math.max(1, Math.min(maxTokens, permit.reservation.available - request.promptEstimate))
    const call = { request: suited(request, permit.model), maxTokens: bound }
    const { answer, hold } = yield* calling(exchange, request, bound, backend.forward(permit, call))
    yield* metrics.firstFrame(nowMs() - exchange.arrivedMs)
    return metered(answer, exchange, hold)
  })
}

const bearsOutput = (frame: Frame): boolean =>
  frame.text !== "" || frame.thinking !== undefined || frame.toolCalls !== undefined

/** What a chunk carries beyond the end of the budget is neither shown nor charged. */
const withoutLast = (chunk: ReadonlyArray<Frame>, excess: number): ReadonlyArray<Frame> => {
  let over = excess
  return chunk
    .toReversed()
    .filter((frame) => !bearsOutput(frame) || over-- <= 0)
    .toReversed()
}

/** The client sees the counts it is charged, where the backend's own could not be believed. */
const asCharged = (final: Frame, exchange: Exchange): Frame => {
  const usage = exchange.usage
  return usage.source === "backend"
    ? final
    : { ...final, promptEvalCount: usage.tokensIn, evalCount: usage.tokensOut }
}
