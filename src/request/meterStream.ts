/**
 * Meters the frames of an answer: it counts every output token, extends the hold, and sends no output beyond the
 * hold. This is true for every chunk, also for the one with the final frame.
 *
 * A frame that costs more than is left is cut, with its text. A long text costs what the backend counts, which only
 * the final frame shows. When it may cost more than is held, or less, it waits for that frame.
 *
 * A stream whose limit or budget is used up ends with `length`. A stream whose Meter does not answer fails with
 * `Unavailable` when its hold is used up. The final frame has the charged counts.
 */
import { Array as Arr, Cause, Channel, Effect, Exit, Pull, type Scope, Stream } from "effect"
import type { Answer, AnswerPull, Broken, Frame, Frames } from "../domain/Frame.ts"
import { bytesPerToken } from "../domain/Usage.ts"
import { cutFrames } from "./cutFrames.ts"
import { longestTokenBytes, type OutputCount } from "./OutputCount.ts"
import type { Transcript } from "../promptlog/transcript.ts"
import type { RequestCost } from "./RequestCost.ts"
import type { Hold } from "./Hold.ts"

/** Reads an answer within a Scope: `each`, which never waits, gets the frames of each read, and then `end` goes on. */
export const readAnswer = <E, A, E2>(
  answer: Answer<E>,
  scope: Scope.Scope,
  each: (frames: Frames) => void,
  end: () => Effect.Effect<A, E2>
) => {
  const all = Effect.flatMap(Channel.toPullScoped(Stream.toChannel(answer), scope), (pull) =>
    Effect.forever(Effect.map(pull, each), { disableYield: true })
  )
  return Pull.catchDone(all, end)
}

export interface Metered {
  readonly hold: Hold
  readonly transcript: Transcript | undefined
  /** run when the answer has ended, before its reader is told; not run for a reader that leaves */
  readonly over: (exit: Exit.Exit<unknown, unknown>) => Effect.Effect<void>
}

/** Passes on the part of each chunk that the hold covers, up to the frame that is `done`. */
export const meterStream = (answer: Answer, { hold, over, transcript }: Metered): Answer =>
  Stream.transformPull(answer, (pull: AnswerPull): Effect.Effect<AnswerPull> => {
    const { cost } = hold
    const count = cost.output
    /** why nothing more comes, once it is known */
    let ending: Cause.Cause<Broken | Cause.Done> | undefined
    /** frames that may cost more than is held, until the final frame shows their cost */
    let waiting: ReadonlyArray<Frame> = []
    /** output tokens of the answer so far */
    let metered = 0
    const pass = (shown: ReadonlyArray<Frame>) =>
      Arr.isReadonlyArrayNonEmpty(shown) ? Effect.succeed(shown) : next

    const end = (before: ReadonlyArray<Frame>, final: Frame): Frames => {
      ending = Cause.fail(Cause.Done())
      return Arr.append(before, asCharged(final, cost))
    }

    /** The part of `chunk` that the hold covers, when the answer up to its end costs `output` tokens. */
    const cutToHold = (chunk: ReadonlyArray<Frame>, output: number): ReadonlyArray<Frame> => {
      const fitting = cutFrames(chunk, count, output, hold.output)
      transcript?.add(fitting)
      return fitting
    }

    /** Ends the answer within `chunk`, which costs more than is held. */
    const cut = (chunk: Frames, last: Frame, output: number): ReadonlyArray<Frame> => {
      const shown = cutToHold(chunk, output)
      if (hold.unavailable !== undefined) {
        ending = Cause.fail(hold.unavailable)
        return shown
      }
      if (last.done) cost.final = last
      return end(shown, { createdAt: last.createdAt, text: "", done: true, doneReason: "length" })
    }

    /** What may be sent of `chunk`. */
    const show = (chunk: Frames, last: Frame, output: number): ReadonlyArray<Frame> => {
      // Counts of the final frame beyond the hold do not take back frames that were sent.
      if (output <= hold.output || (last.done && !count.grown)) {
        transcript?.add(chunk)
        if (!last.done) return chunk
        cost.final = last
        return end(Arr.initNonEmpty(chunk), last)
      }
      if (last.done || isCertainlyMore(count, hold.output)) return cut(chunk, last, output)
      waiting = chunk
      return []
    }

    const meter = (fresh: Frames): AnswerPull => {
      const chunk = Arr.appendAll(waiting, fresh)
      const hasAsked = waiting.length > 0 && hold.unavailable !== undefined
      if (waiting.length === 0) count.mark()
      waiting = []
      for (const frame of fresh) count.add(frame)
      const last = Arr.lastNonEmpty(chunk)
      const output = (last.done ? cost.claimedBy(last) : undefined) ?? count.estimate
      cost.call.timing?.record(output - metered)
      metered = output
      if (hasAsked || !hold.isShortOf(output, last.done)) return pass(show(chunk, last, output))
      return Effect.flatMap(hold.extend(output, last.done), () => pass(show(chunk, last, output)))
    }

    /** Without a final frame, waiting frames cost their estimate. */
    const stop = (cause: Cause.Cause<Broken | Cause.Done>): AnswerPull => {
      ending = cause
      return pass(waiting.length === 0 ? [] : cutToHold(waiting, count.estimate))
    }

    const metering = Effect.matchCauseEffect(pull, { onFailure: stop, onSuccess: meter })
    /** the next frames that may be sent */
    const next: AnswerPull = Effect.suspend(() => {
      if (ending === undefined) return metering
      return Effect.andThen(over(Pull.doneExitFromCause(ending)), Effect.failCause(ending))
    })
    return Effect.succeed(next)
  })

/**
 * Whether the frames have more than `limit` tokens by every possible count. It also bounds the waiting frames: 32 bytes
 * for each held token.
 */
const isCertainlyMore = ({ estimate, least }: OutputCount, limit: number): boolean =>
  least > limit || estimate > limit * (longestTokenBytes / bytesPerToken)

/** The final frame with the charged counts, when the counts of the backend are not believable. */
const asCharged = (final: Frame, cost: RequestCost): Frame => {
  const { usage } = cost
  const { promptEvalCachedCount: cached, ...rest } = final
  if (usage.source === "backend" && final === cost.final && cached === usage.tokensCached) return final
  return {
    ...rest,
    promptEvalCount: usage.tokensIn,
    evalCount: usage.tokensOut,
    ...(usage.tokensCached === undefined ? {} : { promptEvalCachedCount: usage.tokensCached })
  }
}
