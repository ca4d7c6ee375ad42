import { Effect, Layer, Stream } from "effect"
import { layerCircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { layerMemory, replyWith } from "../support/twins/Backend.ts"
import { errorTexts } from "../../src/backend/ollama/errors.ts"
import { BackendFailed, BadRequest, Forbidden } from "../../src/domain/Errors.ts"
import type { Frame } from "../../src/domain/Frame.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { modelNamed } from "../support/permits.ts"
import { type Situation, suite } from "./Backend.ts"

const words = replyWith(["Hello", " world", "!"], 100)

type Reply = Effect.Effect<Stream.Stream<Frame, BackendFailed>, BackendFailed | BadRequest | Forbidden>

const replies: Readonly<Record<Situation, Reply>> = {
  answers: Effect.succeed(words),
  "breaks after two frames": Effect.succeed(
    Stream.concat(Stream.take(words, 2), Stream.fail(new BackendFailed({ fault: "cut" })))
  ),
  "breaks before a frame": Effect.fail(new BackendFailed({ fault: "cut" })),
  busy: Effect.fail(new BackendFailed({ fault: "busy", retryAfterS: 1 })),
  "model gone": Effect.fail(new Forbidden({ what: "model not installed" })),
  "context too long": Effect.fail(new BadRequest({ detail: errorTexts.context[0] })),
  "hangs after a frame": Effect.succeed(Stream.concat(Stream.take(words, 1), Stream.never)),
  "never ends": Effect.succeed(
    Stream.forever(Stream.succeed<Frame>({ createdAt: "", text: "", done: false }))
  )
}

/** The same situation for an answer in one object. */
const inOne = <A>(situation: Situation, answer: A) =>
  situation === "answers" ? Effect.succeed(answer) : Effect.as(replies[situation], answer)

suite("memory", (situation) =>
  Effect.succeed(
    layerMemory({
      models: Effect.succeed([modelNamed("fake:latest")]),
      describe: () => Effect.succeed({ capabilities: ["completion", "tools"], contextLength: 8192 }),
      reply: () => replies[situation],
      embed: () =>
        inOne(situation, {
          vectors: ["[0.6,0.8]", "[1,0]"],
          promptEvalCount: 8
        }),
      show: () => inOne(situation, { model_info: {}, capabilities: ["completion"] })
    }).pipe(Layer.provideMerge([layerCircuitBreaker({ failures: 5, openMs: 30_000 }), Drain.layer]))
  )
)
