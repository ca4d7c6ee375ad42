import { Effect, Layer, Stream } from "effect"
import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { refusals } from "../../src/backend/faults.ts"
import { layerMemory, say } from "../../src/backend/memory.ts"
import { BackendFailed, BadRequest, Forbidden } from "../../src/domain/Errors.ts"
import { modelNamed } from "../support/permits.ts"
import { type Situation, suite } from "./Backend.ts"

const words = say(["Hello", " world", "!"], 100)

const replies = {
  answers: Effect.succeed(words),
  "breaks after two frames": Effect.succeed(
    Stream.concat(Stream.take(words, 2), Stream.fail(new BackendFailed({ fault: "cut" })))
  ),
  "breaks before a frame": Effect.fail(new BackendFailed({ fault: "unreachable" })),
  busy: Effect.fail(new BackendFailed({ fault: "busy", retryAfterS: 1 })),
  "model gone": Effect.fail(new Forbidden({ what: "model" })),
  "context too long": Effect.fail(new BadRequest({ detail: refusals.context })),
  "hangs after a frame": Effect.succeed(Stream.concat(Stream.take(words, 1), Stream.never))
} as const satisfies Record<Situation, unknown>

suite("memory", (situation) =>
  Effect.succeed(
    layerMemory({
      models: Effect.succeed([modelNamed("fake:latest")]),
      reply: () => replies[situation]
    }).pipe(Layer.provideMerge(layerCircuitBreaker({ failures: 5, openMs: 30_000 })))
  )
)
