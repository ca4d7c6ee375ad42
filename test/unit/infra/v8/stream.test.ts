import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { assert, it } from "@effect/vitest"
import { Array as Arr, Cause, Effect, Exit, Pull, Scope, Stream } from "effect"
import * as fc from "fast-check"
import * as YoungStream from "../../../../src/infra/v8/stream.ts"

type Makers = typeof YoungStream
const effects: Makers = {
  transformPull: Stream.transformPull,
  fromPull: (pull) => Stream.fromPull(Effect.succeed(pull))
}

/** The chunks one after the other, and then the end, or `failure`. */
const pullOf = (chunks: ReadonlyArray<ReadonlyArray<number>>, failure: string | undefined) => {
  let at = 0
  return Effect.suspend((): Pull.Pull<Arr.NonEmptyReadonlyArray<number>, string> => {
    const chunk = chunks[at++]
    if (chunk !== undefined)
      return Arr.isReadonlyArrayNonEmpty(chunk) ? Effect.succeed(chunk) : Effect.die("empty")
    return failure === undefined ? Cause.done() : Effect.fail(failure)
  })
}

/** What comes of a stream that goes through both makers and through operators of Effect's; and what it told its scope. */
const outcome = (
  { fromPull, transformPull }: Makers,
  chunks: ReadonlyArray<ReadonlyArray<number>>,
  failure: string | undefined,
  wanted: number
) =>
  Effect.gen(function* () {
    const told: Array<string> = []
    const doubled = transformPull(fromPull(pullOf(chunks, failure)), (pull, scope) =>
      Effect.as(
        Scope.addFinalizerExit(scope, (exit) => Effect.sync(() => void told.push(exit._tag))),
        Effect.map(
          pull,
          Arr.map((n) => n * 2)
        )
      )
    )
    const seen: Array<number> = []
    const exit = yield* doubled.pipe(
      Stream.take(wanted),
      Stream.runForEachArray((chunk) => Effect.sync(() => void seen.push(...chunk))),
      Effect.exit
    )
    return { seen, told, exit: Exit.isSuccess(exit) ? "ended" : Cause.squash(exit.cause) }
  })

it.effect("when a stream is run, then it does what Effect's own would", () =>
  Effect.promise(() =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(fc.nat(9), { minLength: 1, maxLength: 4 }), { maxLength: 5 }),
        fc.option(fc.constant("broken"), { nil: undefined }),
        fc.nat(12),
        async (chunks, failure, wanted) => {
          const [ours, theirs] = await Effect.runPromise(
            Effect.all([
              outcome(YoungStream, chunks, failure, wanted),
              outcome(effects, chunks, failure, wanted)
            ])
          )
          assert.deepStrictEqual(ours, theirs)
        }
      )
    )
  )
)

it("when a stream is made here, then it is one of Effect's", () => {
  const stream = YoungStream.fromPull(pullOf([[1]], undefined))
  assert.isTrue(Stream.isStream(stream))
  assert.deepStrictEqual(
    Effect.runSync(stream.pipe(Stream.concat(Stream.make(2)), Stream.map(String), Stream.runCollect)),
    ["1", "2"]
  )
})

/** MiB still held of fifty that streams were made around and run, once the young have been looked through. */
const heldBy = ({ fromPull, transformPull }: Makers): number => {
  const collectYoung = () => {
    const gc: unknown = runInNewContext("gc")
    if (typeof gc !== "function") throw new Error("no gc")
    for (let n = 0; n < 3; n++) gc({ type: "minor" })
  }
  collectYoung()
  const before = process.memoryUsage().arrayBuffers
  for (let n = 0; n < 50; n++) {
    const held = new Uint8Array(1024 * 1024)
    const source = fromPull(pullOf([[held.length]], undefined))
    Effect.runSync(
      Stream.runDrain(
        transformPull(source, (pull) =>
          Effect.succeed(
            Effect.map(
              pull,
              Arr.map((n) => n + held.length)
            )
          )
        )
      )
    )
  }
  collectYoung()
  return (process.memoryUsage().arrayBuffers - before) / (1024 * 1024)
}

it("when a stream has ended, then its objects are collected without a full collection", () => {
  setFlagsFromString("--expose-gc")
  heldBy(YoungStream)
  assert.isBelow(heldBy(YoungStream), 3)
})

it("when Effect's own stream has ended, then its objects stay until a full collection; once they do not, this folder can go", () => {
  setFlagsFromString("--expose-gc")
  assert.isAbove(heldBy(effects), 40)
})
