/**
 * Meters the frames of an answer: it counts every output token, extends the hold, and sends no output beyond the
 * hold. This is true for every chunk, also for the one with the final frame.
 *
 * A frame that costs more than is left is cut, with its text. A long text costs what the backend counts, which only
 * the final frame shows. When it may cost more than is held, or less, it waits for that frame.
 *
 * A stream whose limit or budget is used up ends with `length`. A stream whose Meter does not answer fails with
 * `Unavailable` when its hold is used up. The final frame has the charged counts; the request is finished before the
 * client gets it.
 */
import { Array as Arr, Cause, Effect, type Pull, type Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import { type NoChunk, type Source, transformSource } from "../infra/v8/stream.ts"
import { bytesPerToken } from "../domain/textTokens.ts"
import { cutFrames } from "./cutFrames.ts"
import { longestTokenBytes, type OutputCount } from "./OutputCount.ts"
import type { Transcript } from "../promptlog/PromptLog.ts"
import type { RequestCost } from "./RequestCost.ts"
import type { Hold } from "./Hold.ts"

type Frames = Arr.NonEmptyReadonlyArray<Frame>
type Failure = BackendFailed | ShuttingDown | Unavailable
/** The frames that may be sent, or what has to be done to get them. */
type Step = Frames | Pull.Pull<Frames, Failure>

const isFrames = (step: Step | NoChunk): step is Frames => Array.isArray(step)
const toPull = (step: Step): Pull.Pull<Frames, Failure> => (isFrames(step) ? Effect.succeed(step) : step)

/** Ends with the one frame that is `done`, as the last of its chunk. */
export type Answer = Stream.Stream<Frame, Failure>

/**
 * Passes on the part of each chunk that the hold covers, up to the frame that is `done`. While nothing has to be asked, it
 * takes no step of the fiber.
 */
export const meterStream = (
  frames: Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>,
  hold: Hold,
  transcript: Transcript | undefined
): Answer =>
  transformSource(frames, (source): Source<Frame, Failure> => {
    const { cost } = hold
    const count = cost.output
    /** the end of the answer, once it is known */
    let ending: Pull.Pull<never, Failure> | undefined
    /** frames that may cost more than is held, until the final frame shows their cost */
    let waiting: Frames | undefined
    /** output tokens of the answer so far */
    let metered = 0
    /** what `poll` has left to `pull` */
    let left: Pull.Pull<Frames, Failure> | undefined

    const end = (before: ReadonlyArray<Frame>, final: Frame): Frames => {
      ending = over
      return Arr.append(before, asCharged(final, cost))
    }

    /** Sends what the hold covers, and then fails the answer. */
    const fail = (before: ReadonlyArray<Frame>, error: Failure): Step => {
      if (!Arr.isReadonlyArrayNonEmpty(before)) return Effect.fail(error)
      ending = Effect.fail(error)
      return before
    }

    /** The part of `chunk` that the hold covers, when the answer up to its end costs `output` tokens. */
    const cutToHold = (chunk: Frames, output: number): ReadonlyArray<Frame> => {
      const fitting = cutFrames(chunk, count, output, hold.output)
      transcript?.add(fitting)
      return fitting
    }

    /** Ends the answer within `chunk`, which costs more than is held. */
    const cut = (chunk: Frames, last: Frame, output: number): Step => {
      const shown = cutToHold(chunk, output)
      const unavailable = hold.unavailable
      if (unavailable !== undefined) return fail(shown, unavailable)
      if (last.done) cost.count(last)
      return end(shown, { createdAt: last.createdAt, text: "", done: true, doneReason: "length" })
    }

    /** Sends `chunk` if the hold covers it. Counts of the final frame beyond the hold do not take back frames already sent. */
    const show = (chunk: Frames, last: Frame, output: number): Step => {
      if (output <= hold.output || (last.done && !count.grown)) {
        transcript?.add(chunk)
        if (!last.done) return chunk
        cost.count(last)
        return end(Arr.initNonEmpty(chunk), last)
      }
      if (last.done || isCertainlyMore(count, hold.output)) return cut(chunk, last, output)
      waiting = chunk
      return nextOfWaiting()
    }

    const meter = (fresh: Frames): Step => {
      const chunk = waiting === undefined ? fresh : Arr.appendAll(waiting, fresh)
      if (waiting === undefined) count.mark()
      const hasAsked = waiting !== undefined && hold.unavailable !== undefined
      waiting = undefined
      for (const frame of fresh) count.add(frame)
      const last = Arr.lastNonEmpty(chunk)
      const output = (last.done ? cost.claimedBy(last) : undefined) ?? count.estimate
      cost.timing?.record(output - metered)
      metered = output
      const short = !hasAsked && (last.done ? hold.isShortOfFinal(output) : hold.isShortOf(output))
      if (!short) return show(chunk, last, output)
      const extending = last.done ? hold.extendFinal(output) : hold.extend(output)
      return Effect.flatMap(extending, () => toPull(show(chunk, last, output)))
    }

    const next = (): Pull.Pull<Frames, Failure> =>
      Effect.flatMap(source.pull(), (chunk) => toPull(meter(chunk)))

    /** At the end without a final frame, waiting frames cost their estimate. */
    const nextOfWaiting = (): Pull.Pull<Frames, Failure> =>
      Effect.matchEffect(source.pull(), {
        onSuccess: (chunk) => toPull(meter(chunk)),
        onFailure: (error) => {
          const chunk = waiting
          waiting = undefined
          if (chunk === undefined) return Effect.fail(error)
          const shown = cutToHold(chunk, count.estimate)
          ending = Effect.fail(error)
          return Arr.isReadonlyArrayNonEmpty(shown) ? Effect.succeed(shown) : ending
        }
      })

    const pull = (): Pull.Pull<Frames, Failure> => {
      const step = left ?? ending ?? next()
      left = undefined
      return step
    }

    const poll = (): Frames | NoChunk => {
      if (ending !== undefined) return ending === over ? "ended" : "blocked"
      const fresh = source.poll()
      if (!isFrames(fresh)) return fresh
      const step = meter(fresh)
      if (isFrames(step)) return step
      left = step
      return "blocked"
    }

    return { poll, pull, onReady: (wake) => source.onReady(wake), close: (exit) => source.close(exit) }
  })

/** The end of an answer that is complete. */
const over: Pull.Pull<never> = Cause.done()

/**
 * Whether the frames have more than `limit` tokens by every possible count. It also bounds the waiting frames: 32 bytes
 * for each held token.
 */
const isCertainlyMore = ({ estimate, least }: OutputCount, limit: number): boolean =>
  least > limit || estimate > limit * (longestTokenBytes / bytesPerToken)

/** The final frame with the charged counts, when the counts of the backend are not believable. */
const asCharged = (final: Frame, cost: RequestCost): Frame => {
  const { usage } = cost
  return usage.source === "backend" && final === cost.final
    ? final
    : { ...final, promptEvalCount: usage.tokensIn, evalCount: usage.tokensOut }
}
