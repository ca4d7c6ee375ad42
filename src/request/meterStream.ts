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
import { Array as Arr, Cause, Channel, Effect, Exit, Pull, type Scope, type Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import { bytesPerToken } from "../domain/Usage.ts"
import { cutFrames } from "./cutFrames.ts"
import { longestTokenBytes, type OutputCount } from "./OutputCount.ts"
import type { Transcript } from "../promptlog/transcript.ts"
import type { RequestCost } from "./RequestCost.ts"
import type { Hold } from "./Hold.ts"

type Frames = Arr.NonEmptyReadonlyArray<Frame>
type Failure = BackendFailed | ShuttingDown | Unavailable

/** Pulls the chunks of an answer. The last frame, and no other, is `done`. */
export type Answer<E = Failure> = Pull.Pull<Frames, E>

/** Runs `each` for each chunk of an answer. */
export const forEachChunk = <E>(answer: Answer<E>, each: (frames: Frames) => void) =>
  Pull.catchDone(Effect.forever(Effect.map(answer, each), { disableYield: true }), () => Effect.void)

export interface Metered {
  readonly hold: Hold
  readonly transcript: Transcript | undefined
  /** the Scope of the call, in which the stream is run */
  readonly scope: Scope.Scope
  /** run when the answer has ended, before its reader is told; not run for a reader that leaves */
  readonly over: (exit: Exit.Exit<unknown, unknown>) => Effect.Effect<void>
}

/** Passes on the part of each chunk that the hold covers, up to the frame that is `done`. */
export const meterStream = (
  frames: Stream.Stream<Frame, Failure>,
  { hold, over, scope, transcript }: Metered
): Effect.Effect<Answer> => {
  const { cost } = hold
  const count = cost.output
  /** how the answer ends, once it is known */
  let ending: Exit.Exit<never, Failure | Cause.Done> | undefined
  /** frames that may cost more than is held, until the final frame shows their cost */
  let waiting: ReadonlyArray<Frame> = []
  /** output tokens of the answer so far */
  let metered = 0
  /** the next frames that may be sent */
  let next: Answer = noChunk

  const pass = (shown: ReadonlyArray<Frame>) =>
    Arr.isReadonlyArrayNonEmpty(shown) ? Effect.succeed(shown) : next

  const end = (before: ReadonlyArray<Frame>, final: Frame): Frames => {
    ending = noChunk
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
      ending = Exit.fail(hold.unavailable)
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

  const meter = (fresh: Frames): Answer => {
    const chunk = Arr.appendAll(waiting, fresh)
    const hasAsked = waiting.length > 0 && hold.unavailable !== undefined
    if (waiting.length === 0) count.mark()
    waiting = []
    for (const frame of fresh) count.add(frame)
    const last = Arr.lastNonEmpty(chunk)
    const output = (last.done ? cost.claimedBy(last) : undefined) ?? count.estimate
    cost.timing?.record(output - metered)
    metered = output
    if (hasAsked || !hold.isShortOf(output, last.done)) return pass(show(chunk, last, output))
    return Effect.flatMap(hold.extend(output, last.done), () => pass(show(chunk, last, output)))
  }

  /** Without a final frame, waiting frames cost their estimate. */
  const stop = (cause: Cause.Cause<Failure | Cause.Done>): Answer => {
    ending = Exit.failCause(cause)
    return pass(waiting.length === 0 ? [] : cutToHold(waiting, count.estimate))
  }

  return Effect.map(Channel.toPullScoped(frames.channel, scope), (pull) => {
    const metering = Effect.matchCauseEffect(pull, { onFailure: stop, onSuccess: meter })
    next = Effect.suspend(() =>
      ending === undefined ? metering : Effect.andThen(over(resultOf(ending)), ending)
    )
    return next
  })
}

const noChunk: Exit.Exit<never, Cause.Done> = Exit.fail(Cause.Done())

/** The end of a pull as that of its stream. */
const resultOf = (ending: Exit.Exit<never, Failure | Cause.Done>): Exit.Exit<unknown, Failure> =>
  Exit.isSuccess(ending) ? Exit.void : Pull.doneExitFromCause(ending.cause)

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
