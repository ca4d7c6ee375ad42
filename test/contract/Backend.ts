import { uncounted } from "../../src/backend/AnswerMemory.ts"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope, Stream } from "effect"
import { describe } from "vitest"
import { frameBoundsOf } from "../../src/backend/answerBounds.ts"
import { Backend } from "../../src/backend/Backend.ts"
import type { CircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import type { CallError } from "../../src/backend/errors.ts"
import { refusals } from "../../src/backend/ollama/errors.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { callOf, permitFor } from "../support/permits.ts"
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
  const inSituation = <A, E>(
    situation: Situation,
    test: Effect.Effect<A, E, Backend | CircuitBreaker | Drain | Scope.Scope>
  ) => Effect.flatMap(arrange(situation), (layer) => Effect.provide(test, layer))
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
    it.live("when it answers, then its frames come in order and end after the final one", () =>
      inSituation(
        "answers",
        Effect.gen(function* () {
          const frames = yield* run
          assert.deepStrictEqual(
            frames.map(({ text }) => text),
            ["Hello", " world", "!", ""]
          )
          const last = frames.at(-1)
          assert.deepInclude(last, { done: true, doneReason: "stop", promptEvalCount: 7, evalCount: 3 })
        })
      )
    )

    it.live("when an answer breaks, then the frames before the break are passed on, and then it fails", () =>
      inSituation(
        "breaks after two frames",
        Effect.gen(function* () {
          const seen: Array<string> = []
          const frames = yield* forward
          const error = yield* Effect.flip(
            Stream.runForEach(frames, ({ text }) => Effect.sync(() => void seen.push(text)))
          )
          assert.strictEqual(named(error), "cut")
          assert.deepStrictEqual(seen, ["Hello", " world"])
        })
      )
    )

    it.live(
      "when an answer has more frames than its bound allows, then it fails, and five open the breaker",
      () =>
        inSituation(
          "never ends",
          Effect.gen(function* () {
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
          })
        )
    )

    it.live("when a prompt does not fit, then the client is told so in our own words", () =>
      inSituation(
        "context too long",
        Effect.gen(function* () {
          const error = yield* Effect.flip(run)
          assert.deepInclude(error, { _tag: "BadRequest", detail: refusals.context })
          assert.include(refusals.context, "maximum context length")
        })
      )
    )

    it.live("when twenty clients leave, then the breaker does not count it", () =>
      inSituation(
        "hangs after a frame",
        Effect.gen(function* () {
          for (let i = 0; i < 20; i += 1) {
            const frames = yield* forward
            yield* frames.pipe(Stream.runDrain, Effect.timeoutOption("5 millis"), Effect.scoped)
          }
          yield* Effect.asVoid(forward)
        }).pipe(Effect.scoped)
      )
    )

    it.live("when this process stops, then a hanging answer ends and the breaker does not count it", () =>
      inSituation(
        "hangs after a frame",
        Effect.gen(function* () {
          const drain = yield* Drain
          const seen: Array<string> = []
          const reading = Stream.runForEach(yield* forward, ({ text }) => Effect.sync(() => seen.push(text)))
          const running = yield* Effect.forkChild(Effect.flip(reading))
          assert.isTrue(yield* comesTrue(() => seen.length === 1))
          yield* drain.cut
          assert.strictEqual(named(yield* Fiber.join(running)), "ShuttingDown")
          assert.deepStrictEqual(seen, ["Hello"])
          for (let i = 0; i < 8; i += 1) assert.strictEqual(yield* faultOf, "ShuttingDown")
        }).pipe(Effect.scoped)
      )
    )

    it.live(
      "when texts are embedded and a model described, then there is a vector for each text in order, and no template",
      () =>
        inSituation(
          "answers",
          Effect.gen(function* () {
            const { vectors, promptEvalCount } = yield* embed
            assert.lengthOf(vectors, 2)
            assert.isTrue(vectors.flat().every(Number.isFinite))
            assert.strictEqual(promptEvalCount, 8)
            const shown = yield* show
            assert.deepInclude(shown, { capabilities: ["completion"] })
            assert.notProperty(shown, "template")
            assert.property(shown, "model_info")
          })
        )
    )

    for (const [verb, answer] of [
      ["forward", Effect.asVoid(run)],
      ["embed", Effect.asVoid(embed)],
      ["show", Effect.asVoid(show)]
    ] as const) {
      const fault = Effect.map(Effect.flip(answer), named)
      it.live(`when ${verb} fails five times, then the breaker opens, and forward is refused too`, () =>
        inSituation(
          "breaks before a frame",
          Effect.gen(function* () {
            const faults: Array<string> = []
            for (let i = 0; i < 5; i += 1) faults.push(yield* fault)
            faults.push(yield* faultOf, yield* fault)
            assert.deepStrictEqual(faults, [
              ...Array.from({ length: 5 }, () => "cut"),
              "CircuitOpen",
              "CircuitOpen"
            ])
          })
        )
      )
      for (const [situation, expected] of [
        ["busy", "busy"],
        ["model gone", "Forbidden"],
        ["context too long", "BadRequest"]
      ] as const) {
        it.live(`when ${verb} fails (${situation}), then the breaker does not count it`, () =>
          inSituation(
            situation,
            Effect.gen(function* () {
              for (let i = 0; i < 8; i += 1) assert.strictEqual(yield* fault, expected)
            })
          )
        )
      }
    }

    it.live("when it is asked for models, descriptions and a ping, then it answers each", () =>
      inSituation(
        "answers",
        Effect.gen(function* () {
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
        })
      )
    )
  })
}
