/**
 * A backend's frames, metered: every output token is counted, the hold grows with them, and nothing is shown that is not
 * held. This is true of every chunk, the one with the final frame too.
 *
 * A frame that costs more than is left is cut, and so is its text. A long text costs what the backend counts, and only the
 * final frame tells: where it may cost more than is held, and may cost less, it waits for that frame.
 *
 * A stream whose limit or budget has nothing more to give is ended with `length`; one whose Meter does not answer fails
 * with `Unavailable`, once all that was held is shown. The final frame says what the request is charged; whoever encodes
 * that frame concludes the request before the client sees it.
 */
import { Array as Arr, Cause, Effect, type Pull, type Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import * as YoungStream from "../infra/v8/stream.ts"
import { bytesPerToken } from "../domain/textTokens.ts"
import { cutFrames } from "./cutFrames.ts"
import { longestTokenBytes, type OutputCount } from "./OutputCount.ts"
import type { Transcript } from "../promptlog/PromptLog.ts"
import type { RequestCost } from "./RequestCost.ts"
import type { Hold } from "./Hold.ts"

type Frames = Arr.NonEmptyReadonlyArray<Frame>
type Failure = BackendFailed | ShuttingDown | Unavailable
type Step = Pull.Pull<Frames, Failure>

/** Ends with the one frame that is `done`, as the last of its chunk. */
export type Answer = Stream.Stream<Frame, Failure>

/** What of each chunk goes on to the client, up to the frame that is `done`; a step of a pull, not a stage. */
export const meterStream = (
  frames: Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>,
  hold: Hold,
  transcript: Transcript | undefined
): Answer =>
  YoungStream.transformPull(frames, (pull) => {
    const { cost } = hold
    const count = cost.output
    /** how the answer ends, once that is known */
    let ending: Pull.Pull<never, Failure> | undefined
    /** frames that may cost more than is held, for as long as nothing tells */
    let waiting: Frames | undefined
    /** output tokens of the answer so far */
    let heard = 0

    const end = (before: ReadonlyArray<Frame>, final: Frame): Effect.Effect<Frames> => {
      ending = Cause.done()
      return Effect.succeed(Arr.append(before, asCharged(final, cost)))
    }

    /** What is held is shown, and then the answer fails. */
    const fail = <E extends Failure>(before: ReadonlyArray<Frame>, error: E): Effect.Effect<Frames, E> => {
      if (!Arr.isReadonlyArrayNonEmpty(before)) return Effect.fail(error)
      ending = Effect.fail(error)
      return Effect.succeed(before)
    }

    /** What of `chunk` fits in what is held, when the answer up to its end costs `output` tokens. */
    const kept = (chunk: Frames, output: number): ReadonlyArray<Frame> => {
      const fitting = cutFrames(chunk, count, output, hold.output)
      transcript?.add(fitting)
      return fitting
    }

    /** `chunk` costs more than is held. */
    const cut = (chunk: Frames, last: Frame, output: number): Effect.Effect<Frames, Unavailable> => {
      const shown = kept(chunk, output)
      const unavailable = hold.unavailable
      if (unavailable !== undefined) return fail(shown, unavailable)
      if (last.done) cost.count(last)
      return end(shown, { createdAt: last.createdAt, text: "", done: true, doneReason: "length" })
    }

    /** An end that claims more than is held, after frames that were shown, takes nothing back. */
    const show = (chunk: Frames, last: Frame, output: number): Step => {
      if (output <= hold.output || (last.done && !count.grown)) {
        transcript?.add(chunk)
        if (!last.done) return Effect.succeed(chunk)
        cost.count(last)
        return end(Arr.initNonEmpty(chunk), last)
      }
      if (last.done || isCertainlyMore(count, hold.output)) return cut(chunk, last, output)
      waiting = chunk
      return nextOfWaiting
    }

    const judge = (fresh: Frames): Step => {
      const chunk = waiting === undefined ? fresh : Arr.appendAll(waiting, fresh)
      if (waiting === undefined) count.mark()
      const hasAsked = waiting !== undefined && hold.unavailable !== undefined
      waiting = undefined
      for (const frame of fresh) count.add(frame)
      const last = Arr.lastNonEmpty(chunk)
      const output = (last.done ? cost.claimedBy(last) : undefined) ?? count.estimate
      cost.speech?.heard(output - heard)
      heard = output
      const short = !hasAsked && (last.done ? hold.isShortOfFinal(output) : hold.isShortOf(output))
      if (!short) return show(chunk, last, output)
      const extending = last.done ? hold.extendFinal(output) : hold.extend(output)
      return Effect.flatMap(extending, () => show(chunk, last, output))
    }

    const next: Step = Effect.flatMap(pull, judge)

    /** When nothing more comes, nothing will tell either: the frames that wait cost what they are estimated at. */
    const nextOfWaiting: Step = Effect.matchEffect(pull, {
      onSuccess: judge,
      onFailure: (error) => {
        const chunk = waiting
        waiting = undefined
        if (chunk === undefined) return Effect.fail(error)
        const shown = kept(chunk, count.estimate)
        ending = Effect.fail(error)
        return Arr.isReadonlyArrayNonEmpty(shown) ? Effect.succeed(shown) : ending
      }
    })

    return Effect.succeed(Effect.suspend((): Step => ending ?? next))
  })

/**
 * Whether what was counted is more than `most` tokens by any count that can be true. This is also the bound of what waits:
 * 32 bytes for each token that is held.
 */
const isCertainlyMore = ({ estimate, least }: OutputCount, most: number): boolean =>
  least > most || estimate > most * (longestTokenBytes / bytesPerToken)

/** The client sees the counts it is charged, where they are not the backend's own. */
const asCharged = (final: Frame, cost: RequestCost): Frame => {
  const { usage } = cost
  return usage.source === "backend" && final === cost.final
    ? final
    : { ...final, promptEvalCount: usage.tokensIn, evalCount: usage.tokensOut }
}
