import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Exit, Option, Pull, Stream } from "effect"
import type { CircuitBreaker } from "../../../src/backend/CircuitBreaker.ts"
import { streamWithBreaker } from "../../../src/backend/withBreaker.ts"
import { BackendFailed, ShuttingDown, type Unavailable } from "../../../src/domain/Errors.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import { permitFor } from "../../support/permits.ts"

const frame: Frame = { createdAt: "2026-01-01T00:00:00Z", text: "x", done: false }
const frames = Stream.rechunk(Stream.make(frame, frame, frame), 1)
const cut = new BackendFailed({ fault: "cut" })

type Frames = Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable>

/** What the breaker is told of `stream` when `read` reads it. */
const told = Effect.fnUntraced(function* <A, E>(
  stream: Frames,
  read: (frames: Frames) => Effect.Effect<A, E>
) {
  const reports: Array<string> = []
  let heard = 0
  const breaker: CircuitBreaker["Service"] = {
    check: () => Exit.void,
    guard: (_key, verdictOf) =>
      Exit.succeed({
        heard: () => {
          heard += 1
          return undefined
        },
        ended: (exit) => {
          // Only the first report counts.
          if (reports.length > 0) return undefined
          const error = Exit.isFailure(exit)
            ? Option.getOrUndefined(Cause.findErrorOption(exit.cause))
            : undefined
          reports.push(Exit.isSuccess(exit) ? "success" : error === undefined ? "ignored" : verdictOf(error))
          return undefined
        }
      }),
    state: Effect.succeed("closed"),
    openKeys: Effect.succeed(0)
  }
  const pull = yield* Stream.toPull(stream)
  const given = streamWithBreaker(breaker, permitFor("m"), () => ({
    begun: Effect.map(
      Pull.catchDone(pull, () => Effect.die("no frames")),
      (frames) => ({ frames, rest: pull })
    ),
    close: () => undefined
  }))
  yield* Effect.exit(Effect.scoped(Effect.flatMap(given, (answer) => read(answer))))
  return { heard, reports }
}, Effect.scoped)

describe("the end of a stream", () => {
  const failing = Stream.concat(frames, Stream.fail(cut))
  const cases: ReadonlyArray<
    readonly [
      string,
      Effect.Effect<{ readonly reports: ReadonlyArray<string> }, unknown>,
      ReadonlyArray<string>
    ]
  > = [
    ["a stream is read to its end", told(frames, Stream.runDrain), ["success"]],
    [
      "the rest of a stream is not wanted",
      told(frames, (all) => Stream.runDrain(Stream.take(all, 1))),
      ["success"]
    ],
    ["a stream breaks", told(failing, Stream.runDrain), ["failure"]],
    [
      "a stream breaks and its reader handles that",
      told(failing, (all) => Stream.runDrain(Stream.catchCause(all, () => Stream.make(frame)))),
      ["failure"]
    ],
    [
      "no connection could be made",
      told(Stream.fail(new BackendFailed({ fault: "unreachable" })), Stream.runDrain),
      ["outage"]
    ],
    [
      "the backend is busy",
      told(Stream.fail(new BackendFailed({ fault: "busy" })), Stream.runDrain),
      ["ignored"]
    ],
    [
      "this process ends",
      told(Stream.concat(frames, Stream.fail(new ShuttingDown({}))), Stream.runDrain),
      ["ignored"]
    ],
    [
      "there is a defect",
      told(Stream.concat(frames, Stream.die(new Error("a bug"))), Stream.runDrain),
      ["ignored"]
    ],
    [
      "the client leaves",
      told(Stream.concat(frames, Stream.never), (all) =>
        Effect.andThen(Stream.runHead(all), Effect.interrupt)
      ),
      ["ignored"]
    ]
  ]
  for (const [how, told, expected] of cases) {
    it.effect(`when ${how}, then the breaker hears ${expected[0]}`, () =>
      Effect.map(told, ({ reports }) => assert.deepStrictEqual(reports, expected))
    )
  }

  it.effect("when a stream goes on, then the breaker hears each of its frames, and no end is one", () =>
    Effect.map(told(failing, Stream.runDrain), ({ heard }) => assert.strictEqual(heard, 3))
  )
})
