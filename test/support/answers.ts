/** Answers of the model server, and streams of their frames. */
import { Effect, Stream } from "effect"
import type { Answer, Frame } from "../../src/domain/Frame.ts"

export const streamOf = <E>(answer: Answer<E>): Stream.Stream<Frame, E> =>
  Stream.fromPull(Effect.succeed(answer))
