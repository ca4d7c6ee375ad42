import { uncounted } from "../../src/memory/MemoryLedger.ts"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope, Stream } from "effect"
import { describe } from "vitest"
import { frameBoundsOf } from "../../src/backend/answerBounds.ts"
import { Backend } from "../../src/backend/Backend.ts"
import type { CircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import type { CallError } from "../../src/backend/errors.ts"
import { errorTexts } from "../../src/backend/ollama/errors.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { callOf, permitFor } from "../support/permits.ts"
import type { Steps } from "../support/testWith.ts"
import { comesTrue } from "../support/wait.ts"

/** What a backend can do that both twins have to understand alike. */
export type Situation =
  | "answers"
  | "breaks after two frames"
  | "breaks before a frame"
  | "busy"
  | "model gone"
  | "context too long"
  | "hangs after a frame"
  | "never ends"

export type Twin = Layer.Layer<Backend | CircuitBreaker | Drain>

const named = (error: CallError): string => (error._tag === "BackendFailed" ? error.fault : error._tag)

/** `arrange` gives the layer with a backend that does the same thing at every call. */
export const suite = (
  name: string,
  arrange: (situation: Situation) => Effect.Effect<Twin, never, Scope.Scope>
): void => {
  const test = (name: string, situation: Situation, steps: Steps<Backend | CircuitBreaker | Drain>) =>
    it.live(name, () =>
      Effect.flatMap(arrange(situation), (layer) => Effect.provide(Effect.scoped(Effect.gen(steps)), layer))
    )
  const forward = Effect.flatMap(Backend, (backend) => backend.forward(permitFor("fake:latest"), uncounted))
  const run = Effect.flatMap(forward, Stream.runCollect)
  const embed = Effect.flatMap(Backend, (backend) =>
    backend.embed(
      permitFor("fake:latest", callOf({ kind: "embed", body: { input: ["a", "b"] } }, 0)),
      uncounted
    )
  )
  const show = Effect.flatMap(Backend, (backend) => backend.show(permitFor("fake:latest"), uncounted))
  const faultOf = Effect.map(Effect.flip(run), named)

  describe(`Backend: ${name}`, () => {
    test(
      "when it answers, then its frames come in order and end after the final one",
      "answers",
      function* () {
        const frames = yield* run
        assert.deepStrictEqual(
          frames.map(({ text }) => text),
          ["Hello", " world", "!", ""]
        )
        const last = frames.at(-1)
        assert.deepInclude(last, { done: true, doneReason: "stop", promptEvalCount: 7, evalCount: 3 })
      }
    )

    test(
      "when an answer breaks, then the frames before the break are passed on, and then it fails",
      "breaks after two frames",
      function* () {
        const seen: Array<string> = []
        const frames = yield* forward
        const error = yield* Effect.flip(
          Stream.runForEach(frames, ({ text }) => Effect.sync(() => void seen.push(text)))
        )
        assert.strictEqual(named(error), "cut")
        assert.deepStrictEqual(seen, ["Hello", " world"])
      }
    )

    test(
      "when an answer has more frames than its bound allows, then it fails, and five open the breaker",
      "never ends",
      function* () {
        let seen = 0
        const faults: Array<string> = []
        for (let i = 0; i < 6; i += 1) {
          const reading = Effect.flatMap(forward, (frames) =>
            Stream.runForEach(frames, () => Effect.sync(() => void (seen += 1)))
          )
          faults.push(named(yield* Effect.flip(Effect.scoped(reading))))
        }
        assert.deepStrictEqual(faults, [...Array.from({ length: 5 }, () => "protocol"), "CircuitOpen"])
        assert.strictEqual(seen, 5 * frameBoundsOf(callOf()).frames)
      }
    )

    test(
      "when a prompt does not fit, then the client is told so in our own words",
      "context too long",
      function* () {
        const error = yield* Effect.flip(run)
        assert.deepInclude(error, { _tag: "BadRequest", detail: errorTexts.context[0] })
        assert.include(errorTexts.context[0], "maximum context length")
      }
    )

    test(
      "when twenty clients leave, then the breaker does not count it",
      "hangs after a frame",
      function* () {
        for (let i = 0; i < 20; i += 1) {
          const frames = yield* forward
          yield* frames.pipe(Stream.runDrain, Effect.timeoutOption("5 millis"), Effect.scoped)
        }
        yield* Effect.asVoid(forward)
      }
    )

    test(
      "when this process stops, then a hanging answer ends and the breaker does not count it",
      "hangs after a frame",
      function* () {
        const drain = yield* Drain
        const seen: Array<string> = []
        const reading = Stream.runForEach(yield* forward, ({ text }) => Effect.sync(() => seen.push(text)))
        const running = yield* Effect.forkChild(Effect.flip(reading))
        assert.isTrue(yield* comesTrue(() => seen.length === 1))
        yield* drain.cut
        assert.strictEqual(named(yield* Fiber.join(running)), "ShuttingDown")
        assert.deepStrictEqual(seen, ["Hello"])
        for (let i = 0; i < 8; i += 1) assert.strictEqual(yield* faultOf, "ShuttingDown")
      }
    )

    test(
      "when texts are embedded and a model described, then there is a vector for each text in order, and no template",
      "answers",
      function* () {
        const { vectors, promptEvalCount } = yield* embed
        assert.lengthOf(vectors, 2)
        for (const vector of vectors)
          assert.isTrue([JSON.parse(String(vector))].flat().every(Number.isFinite))
        assert.strictEqual(promptEvalCount, 8)
        const shown = yield* show
        assert.deepInclude(shown, { capabilities: ["completion"] })
        assert.notProperty(shown, "template")
        assert.property(shown, "model_info")
      }
    )

    for (const [verb, answer] of [
      ["forward", Effect.asVoid(run)],
      ["embed", Effect.asVoid(embed)],
      ["show", Effect.asVoid(show)]
    ] as const) {
      const fault = Effect.map(Effect.flip(answer), named)
      test(
        `when ${verb} fails five times, then the breaker opens, and forward is refused too`,
        "breaks before a frame",
        function* () {
          const faults: Array<string> = []
          for (let i = 0; i < 5; i += 1) faults.push(yield* fault)
          faults.push(yield* faultOf, yield* fault)
          assert.deepStrictEqual(faults, [
            ...Array.from({ length: 5 }, () => "cut"),
            "CircuitOpen",
            "CircuitOpen"
          ])
        }
      )
      for (const [situation, expected] of [
        ["busy", "busy"],
        ["model gone", "Forbidden"],
        ["context too long", "BadRequest"]
      ] as const) {
        test(
          `when ${verb} fails (${situation}), then the breaker does not count it`,
          situation,
          function* () {
            for (let i = 0; i < 8; i += 1) assert.strictEqual(yield* fault, expected)
          }
        )
      }
    }

    test(
      "when it is asked for models, descriptions and a ping, then it answers each",
      "answers",
      function* () {
        const backend = yield* Backend
        yield* backend.ping
        assert.deepStrictEqual(
          (yield* backend.models).map(({ name }) => name),
          ["fake:latest"]
        )
        assert.deepStrictEqual(yield* backend.describe("fake:latest"), {
          capabilities: ["completion", "tools"],
          contextLength: 8192
        })
      }
    )
  })
}
