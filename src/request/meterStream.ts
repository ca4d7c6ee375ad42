/**
 * A backend's frames, metered: every output token is counted, the hold grows with them, and nothing is shown that is not
 * held. This is true of every chunk, the one with the final frame too.
 *
 * A stream whose limit or budget has nothing more to give is ended with `length`; one whose Meter does not answer fails
 * with `Unavailable`, once all that was held is shown. The final frame says what the request is charged; whoever encodes
 * that frame concludes the request before the client sees it.
 */
import { Array as Arr, Cause, Effect, type Pull, type Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import * as YoungStream from "../infra/v8/stream.ts"
import type { RequestContext } from "./RequestContext.ts"
import type { Hold } from "./Hold.ts"

type Frames = Arr.NonEmptyReadonlyArray<Frame>

/** Ends with the one frame that is `done`, as the last of its chunk. */
export type Answer = Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>

/** What of each chunk goes on to the client, up to the frame that is `done`; a step of a pull, not a stage. */
export const meterStream = (
  frames: Stream.Stream<Frame, BackendFailed | ShuttingDown>,
  context: RequestContext,
  hold: Hold
): Answer =>
  YoungStream.transformPull(frames, (pull) => {
    /** how the answer ends, once that is known */
    let ending: Pull.Pull<never, Unavailable> | undefined

    const end = (before: ReadonlyArray<Frame>, final: Frame): Effect.Effect<Frames> => {
      ending = Cause.done()
      return Effect.succeed(Arr.append(before, asCharged(final, context)))
    }

    /** What is held is shown, and then the answer fails. */
    const fail = (before: ReadonlyArray<Frame>, error: Unavailable): Effect.Effect<Frames, Unavailable> => {
      if (!Arr.isReadonlyArrayNonEmpty(before)) return Effect.fail(error)
      ending = Effect.fail(error)
      return Effect.succeed(before)
    }

    /** `output`: tokens of the answer up to the end of `chunk`. */
    const show = (chunk: Frames, last: Frame, output: number): Effect.Effect<Frames, Unavailable> => {
      const kept = output > hold.output ? fitting(chunk, context, output, hold.output) : chunk
      context.transcript?.add(kept)
      if (kept.length === chunk.length) {
        if (!last.done) return Effect.succeed(chunk)
        context.final = last
        return end(Arr.initNonEmpty(chunk), last)
      }
      const unavailable = hold.unavailable
      if (unavailable !== undefined) return fail(kept, unavailable)
      if (last.done) context.final = last
      return end(kept, { createdAt: last.createdAt, text: "", done: true, doneReason: "length" })
    }

    const next = Effect.flatMap(pull, (chunk): Effect.Effect<Frames, Unavailable> => {
      context.output.mark()
      for (const frame of chunk) context.output.add(frame)
      const last = Arr.lastNonEmpty(chunk)
      const count = context.output
      const claimed = last.done ? context.claimedBy(last) : undefined
      const output = claimed === undefined ? count.least : Math.max(count.tokens, claimed)
      // The text that nobody has counted may cost more than it is cut at: that much is held, as far as there is more and the
      // Meter answers.
      const cost = claimed === undefined && hold.unavailable === undefined ? count.estimate : output
      const short = last.done ? hold.isShortOfFinal(cost) : hold.isShortOf(cost)
      if (!short) return show(chunk, last, output)
      const extending = last.done ? hold.extendFinal(cost) : hold.extend(cost)
      return Effect.flatMap(extending, () => show(chunk, last, output))
    })

    return Effect.succeed(
      Effect.suspend((): Pull.Pull<Frames, BackendFailed | ShuttingDown | Unavailable> => ending ?? next)
    )
  })

/**
 * The beginning of `chunk` that fits in `most` output tokens, when all up to its end are `output`. A final frame may claim
 * more tokens than frames have shown: those of its own chunk then stand for all that were not shown before, in equal parts.
 * A chunk that shows nothing is kept as it is. What does not fit was generated too, so it stays in the count: the charge
 * goes to the end of what is held.
 */
const fitting = (
  chunk: Frames,
  { output: count }: RequestContext,
  output: number,
  most: number
): ReadonlyArray<Frame> => {
  const counted = count.least
  count.reset()
  const before = count.least
  if (counted === before) {
    for (const frame of chunk) count.add(frame)
    return chunk
  }
  const worth = Math.max(1, (output - before) / (counted - before))
  const kept: Array<Frame> = []
  let full = false
  for (const frame of chunk) {
    count.add(frame)
    full ||= frame.done || before + (count.least - before) * worth > most
    if (!full) kept.push(frame)
  }
  return kept
}

/** The client sees the counts it is charged, where they are not the backend's own. */
const asCharged = (final: Frame, context: RequestContext): Frame => {
  const usage = context.usage
  return usage.source === "backend" && final === context.final
    ? final
    : { ...final, promptEvalCount: usage.tokensIn, evalCount: usage.tokensOut }
}
