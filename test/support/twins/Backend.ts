/** A backend without sockets, for tests. It gives scripted answers, through the breaker like the real one. */
import { Effect, Layer, Pull, Scope, Stream } from "effect"
import type { Embeddings, Frame } from "../../../src/domain/Frame.ts"
import {
  BackendFailed,
  type BadRequest,
  type Forbidden,
  type ShuttingDown
} from "../../../src/domain/Errors.ts"
import type { JsonObject, ModelCall } from "../../../src/domain/Inference.ts"
import type { Description, Model } from "../../../src/domain/Model.ts"
import type { Facts } from "../../../src/domain/Evidence.ts"
import { Drain } from "../../../src/infra/Drain.ts"
import { frameBoundsOf } from "../../../src/backend/answerBounds.ts"
import { Backend } from "../../../src/backend/Backend.ts"
import { guards } from "../../../src/backend/ollama/guards/guards.ts"
import { CircuitBreaker } from "../../../src/backend/CircuitBreaker.ts"
import { callWithBreaker, streamWithBreaker } from "../../../src/backend/withBreaker.ts"

export interface MemoryScript {
  /** the installed models, read at every poll */
  readonly models: Effect.Effect<ReadonlyArray<Model>, BackendFailed>
  /** makes one answer; succeeds when its first frame is in */
  reply(
    call: ModelCall,
    admitted: Facts<"Audit">
  ): Effect.Effect<Stream.Stream<Frame, BackendFailed>, BackendFailed | BadRequest | Forbidden, Scope.Scope>
  /** calls that are not scripted fail as unreachable */
  embed?(call: ModelCall): Effect.Effect<Embeddings, BackendFailed | BadRequest | Forbidden>
  show?(admitted: Facts<"Audit">): Effect.Effect<JsonObject, BackendFailed | BadRequest | Forbidden>
  describe?(name: string): Effect.Effect<Description, BackendFailed>
  readonly loaded?: Effect.Effect<ReadonlyArray<Model>, BackendFailed>
  readonly ping?: Effect.Effect<void, BackendFailed>
}

export const layerMemory = (script: MemoryScript): Layer.Layer<Backend, never, CircuitBreaker | Drain> =>
  Layer.effect(
    Backend,
    Effect.gen(function* () {
      const breaker = yield* CircuitBreaker
      const drain = yield* Drain
      const whenCut = (of: Facts<"Audit">) =>
        Effect.callback<never, ShuttingDown>((resume) =>
          Effect.sync(drain.onCut((why) => resume(Effect.fail(why)), of))
        )
      const beforeCut = <A, E, R>(of: Facts<"Audit">, work: Effect.Effect<A, E, R>) =>
        Effect.raceFirst(work, whenCut(of))
      /** Applies the bound on frames. There are no bytes to bound here. */
      const bounded = (frames: Stream.Stream<Frame, BackendFailed>, call: ModelCall) =>
        Stream.mapAccumEffect(
          frames,
          () => 0,
          (count, frame) =>
            count < frameBoundsOf(call).frames
              ? Effect.succeed([count + 1, [frame]] as const)
              : new BackendFailed({ fault: "protocol", cause: new Error("more frames than it may have") })
        )
      return Backend.of({
        forward: (permit) =>
          streamWithBreaker(breaker, permit, (admitted) => {
            const scope = Scope.makeUnsafe()
            const begun = Effect.gen(function* () {
              const frames = yield* beforeCut(admitted, script.reply(admitted.call, admitted))
              const pull = yield* Stream.toPull(bounded(frames, admitted.call))
              const rest = beforeCut(admitted, pull)
              const empty = new BackendFailed({ fault: "cut", cause: new Error("no frames") })
              return { frames: yield* Pull.catchDone(rest, () => empty), rest }
            })
            return {
              begun: Scope.provide(begun, scope),
              close: (exit) => Scope.close(scope, exit)
            }
          }),
        embed: (permit) =>
          callWithBreaker(breaker, permit, (admitted) =>
            beforeCut(admitted, script.embed?.(admitted.call) ?? unscripted)
          ),
        show: (permit) =>
          callWithBreaker(breaker, permit, (admitted) =>
            beforeCut(admitted, script.show?.(admitted) ?? unscripted)
          ),
        models: script.models,
        describe: (name) => Effect.suspend(() => script.describe?.(name) ?? unscripted),
        loaded: script.loaded ?? unscripted,
        ping: Effect.as(script.ping ?? Effect.void, {}),
        guards
      })
    })
  )

const unscripted = Effect.suspend(() => new BackendFailed({ fault: "unreachable" }))

/** A successful answer: one frame for each word and a final one with counts, cut at `maxTokens` with `length`. */
export const replyWith = (
  words: ReadonlyArray<string>,
  maxTokens: number,
  promptTokens = 7
): Stream.Stream<Frame> => {
  const sent = words.slice(0, maxTokens)
  const createdAt = "2026-01-01T00:00:00.000000Z"
  const frames = sent.map((text): Frame => ({ createdAt, text, done: false }))
  const final: Frame = {
    createdAt,
    text: "",
    done: true,
    doneReason: sent.length < words.length ? "length" : "stop",
    totalDuration: 5_000_000,
    loadDuration: 1_000_000,
    promptEvalCount: promptTokens,
    promptEvalDuration: 1_000_000,
    evalCount: sent.length,
    evalDuration: 3_000_000
  }
  return Stream.rechunk(Stream.fromArray([...frames, final]), 1)
}
