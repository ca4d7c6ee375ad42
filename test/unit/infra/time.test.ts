/** Waiting for a callback with one timer: what comes first counts, and nothing is left behind. */
import { Worker } from "node:worker_threads"
import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { callbackWithTimeout, makeTimer } from "../../../src/infra/time.ts"

type Resume = (outcome: Effect.Effect<string, string>) => void

const fork = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

/** A source of one callback, and how often it was told that nobody waits. */
const makeSource = Effect.map(makeTimer, (alarm) => {
  const source: { resume?: Resume; forgotten: number } = { forgotten: 0 }
  const wait = callbackWithTimeout<string, string>(
    alarm,
    1000,
    (resume: Resume) => {
      source.resume = resume
      return () => void source.forgotten++
    },
    () => Effect.fail("late")
  )
  return { source, wait, alarm }
})

it.effect("when the result comes in time, then it is passed on, and the timer is cancelled", () =>
  Effect.gen(function* () {
    const { source, wait } = yield* makeSource
    const fiber = yield* fork(wait)
    source.resume?.(Effect.succeed("there"))
    assert.strictEqual(yield* Fiber.join(fiber), "there")
    yield* TestClock.adjust("2 seconds")
    assert.strictEqual(source.forgotten, 0)
  })
)

it.effect("when the result is there at once, then it is passed on", () =>
  Effect.gen(function* () {
    const { alarm } = yield* makeSource
    const now = callbackWithTimeout<string, string>(
      alarm,
      1000,
      (resume) => {
        resume(Effect.succeed("at once"))
        return () => assert.fail("nobody was told to wait")
      },
      () => Effect.fail("late")
    )
    assert.strictEqual(yield* now, "at once")
    yield* TestClock.adjust("2 seconds")
  })
)

it.effect("when the result comes while the wait is cancelled, then it is late all the same", () =>
  Effect.gen(function* () {
    const { alarm } = yield* makeSource
    const touchy = callbackWithTimeout<string, string>(
      alarm,
      1000,
      (resume) => () => resume(Effect.succeed("because you asked")),
      () => Effect.fail("late")
    )
    const fiber = yield* fork(Effect.flip(touchy))
    yield* TestClock.adjust("999 millis")
    assert.isUndefined(fiber.pollUnsafe())
    yield* TestClock.adjust("1 millis")
    assert.strictEqual(yield* Fiber.join(fiber), "late")
  })
)

it.effect("when the caller leaves, then the source is cancelled once and no timer fires", () =>
  Effect.gen(function* () {
    const { source, wait } = yield* makeSource
    const fiber = yield* fork(wait)
    yield* Fiber.interrupt(fiber)
    assert.strictEqual(source.forgotten, 1)
    yield* TestClock.adjust("2 seconds")
    assert.strictEqual(source.forgotten, 1)
  })
)

it.live("when the real clock is used, then the timer fires, and never for an infinite wait", () =>
  Effect.gen(function* () {
    const alarm = yield* makeTimer
    const rung = yield* Effect.callback<string>((resume) => {
      alarm(Number.POSITIVE_INFINITY, () => resume(Effect.succeed("never")))
      alarm(5, () => resume(Effect.succeed("soon")))
    })
    assert.strictEqual(rung, "soon")
  })
)

/** Says something 50 ms after it has begun. */
const speaker = `setTimeout(() => require("node:worker_threads").parentPort.postMessage("there"), 50)`

// On Node's own timers: the runner's live clock is another.
it("when this process was too busy to look before the deadline, then a result that had come in time counts", () =>
  Effect.gen(function* () {
    const worker = yield* Effect.acquireRelease(
      Effect.callback<Worker>((resume) => {
        const worker = new Worker(speaker, { eval: true })
        worker.once("online", () => resume(Effect.succeed(worker)))
      }),
      (worker) => Effect.promise(() => worker.terminate())
    )
    const wait = callbackWithTimeout<string, string>(
      yield* makeTimer,
      200,
      (resume) => {
        const hear = (said: unknown) => resume(Effect.succeed(String(said)))
        worker.once("message", hear)
        return () => void worker.off("message", hear)
      },
      () => Effect.fail("late")
    )
    const fiber = yield* fork(wait)
    // What an immediate keeps Node from is followed by the timers, and only then by what has come.
    yield* Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))
    for (const until = performance.now() + 500; performance.now() < until;);
    assert.strictEqual(yield* Fiber.join(fiber), "there")
  }).pipe(Effect.scoped, Effect.runPromise))
