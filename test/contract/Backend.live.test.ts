import { Effect, Layer } from "effect"
import { layerCircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { layerOllama } from "../../src/backend/ollama/client.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { type Behaviour, fake, makeFakeBackend } from "../support/FakeBackend.ts"
import { type Situation, suite } from "./Backend.ts"

const two = [fake.chat("Hello"), fake.chat(" world")]

const behaviours = {
  answers: undefined,
  "breaks after two frames": { does: "stream", lines: two, ends: "reset" },
  "breaks before a frame": { does: "reset" },
  busy: { does: "answer", status: 503, body: `{"error":"server busy, please try again"}` },
  "model gone": { does: "answer", status: 404, body: `{"error":"model 'x' not found"}` },
  "context too long": {
    does: "answer",
    status: 400,
    body: `{"error":"the prompt is longer than the context length currently available"}`
  },
  "hangs after a frame": { does: "stream", lines: [fake.chat("Hello")], ends: "hang" },
  "never ends": { does: "flood", line: `{"message":{"content":""},"done":false}\n` }
} as const satisfies Record<Situation, Behaviour | undefined>

suite("undici over real sockets", (situation) =>
  Effect.gen(function* () {
    const backend = yield* makeFakeBackend
    backend.always(behaviours[situation])
    return layerOllama({
      url: new URL(backend.url),
      connectTimeoutMs: 1000,
      firstByteTimeoutMs: 2000,
      idleTimeoutMs: 2000,
      connections: 64
    }).pipe(Layer.provideMerge([layerCircuitBreaker({ failures: 5, openMs: 30_000 }), Drain.layer]))
  })
)
