import { assert, it } from "@effect/vitest"
import { Array as Arr, Cause, Effect, Exit, Fiber, type Pull, Scheduler, Scope, Stream } from "effect"
import * as fc from "fast-check"
import * as YoungStream from "../../../../src/infra/v8/stream.ts"
import { heldAfter } from "../../../support/youngGarbage.ts"

type Chunk = Arr.NonEmptyReadonlyArray<number>

/** How a chunk comes: it is there; after a while; or only `pull` can give it. */
type Way = "there" | "later" | "pulled"
interface Coming {
  readonly chunk: Chunk
  readonly way: Way
}

/** The chunks as they come, and then the end, or `failure`. */
class Script implements YoungStream.Source<number, string> {
  readonly #coming: Array<Coming>
  readonly #failure: string | undefined
  #isOnItsWay = false
  wake: (() => void) | undefined

  constructor(coming: ReadonlyArray<Coming>, failure: string | undefined) {
    this.#coming = [...coming]
    this.#failure = failure
  }

  poll(): Chunk | YoungStream.NoChunk {
    const next = this.#coming[0]
    if (next === undefined) return this.#failure === undefined ? "ended" : "blocked"
    if (next.way === "pulled") return "blocked"
    if (next.way === "later") {
      if (!this.#isOnItsWay) setImmediate(() => this.#arrive(next))
      this.#isOnItsWay = true
      return "waiting"
    }
    this.#coming.shift()
    return next.chunk
  }

  #arrive(next: Coming): void {
    this.#isOnItsWay = false
    this.#coming[0] = { ...next, way: "there" }
    this.wake?.()
  }

  pull(): Pull.Pull<Chunk, string> {
    const next = this.#coming.shift()
    if (next !== undefined) return next.way === "there" ? Effect.succeed(next.chunk) : soon(next.chunk)
    return this.#failure === undefined ? Cause.done() : Effect.fail(this.#failure)
  }

  close(): undefined {}

  onReady(wake: (() => void) | undefined): void {
    this.wake = wake
  }
}

const soon = <A>(value: A): Effect.Effect<A> => Effect.as(Effect.yieldNow, value)
const doubled = (chunk: Chunk): Chunk => Arr.map(chunk, (n) => n * 2)

/** A stream of the script with changed chunks, by our makers or by Effect's. */
const ours = (script: Script, told: Array<string>, change = doubled): Stream.Stream<number, string> =>
  YoungStream.transformSource(
    YoungStream.fromSource(() => script),
    (source): YoungStream.Source<number, string> => ({
      poll: () => {
        const next = source.poll()
        return typeof next === "string" ? next : change(next)
      },
      pull: () => Effect.map(source.pull(), change),
      onReady: (wake) => source.onReady(wake),
      close: (exit) => Effect.andThen(tell(told, exit), source.close(exit) ?? Effect.void)
    })
  )
type Maker = typeof ours
const effects: Maker = (script, told, change = doubled) =>
  Stream.transformPull(Stream.fromPull(Effect.succeed(Effect.suspend(() => script.pull()))), (pull, scope) =>
    Effect.as(
      Scope.addFinalizerExit(scope, (exit) => tell(told, exit)),
      Effect.map(pull, change)
    )
  )
const tell = (told: Array<string>, exit: Exit.Exit<unknown, unknown>) =>
  Effect.sync(() => void told.push(exit._tag))

type Runner = (
  stream: Stream.Stream<number, string>,
  write: (chunk: Chunk) => Effect.Effect<void> | undefined
) => Effect.Effect<void, string>

const runForEach: Runner = (stream, write) =>
  Stream.runForEachArray(stream, (chunk) => write(chunk) ?? Effect.void)

/** What comes of a stream whose writer has no room now and then; and what its scope was told. */
const outcome = (
  make: Maker,
  run: Runner,
  coming: ReadonlyArray<Coming>,
  failure: string | undefined,
  fullAfter: number,
  wanted: number | undefined
) =>
  Effect.gen(function* () {
    const [told, seen, script] = [Array<string>(), Array<Chunk>(), new Script(coming, failure)]
    const stream = make(script, told)
    let isFull = false
    const exit = yield* Effect.exit(
      run(wanted === undefined ? stream : Stream.take(stream, wanted), (chunk) => {
        assert.isFalse(isFull, "nothing is written while there is no room")
        seen.push(chunk)
        if (seen.length % fullAfter !== 0) return undefined
        isFull = true
        return Effect.andThen(
          soon(undefined),
          Effect.sync(() => void (isFull = false))
        )
      })
    )
    assert.isUndefined(script.wake, "nobody is woken afterwards")
    return { seen, told, exit: Exit.isSuccess(exit) ? "ended" : Cause.squash(exit.cause) }
  })

it("when a stream is run, then it does what Effect's own would", () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          chunk: fc.tuple(fc.nat(9), fc.nat(9)).map(([n, m]): Chunk => [n, m]),
          way: fc.constantFrom<Way>("there", "later", "pulled")
        }),
        { maxLength: 8 }
      ),
      fc.option(fc.constant("broken"), { nil: undefined }),
      fc.integer({ min: 1, max: 4 }),
      fc.option(fc.nat(12), { nil: undefined }),
      async (coming, failure, fullAfter, wanted) => {
        const run = (make: Maker, runner: Runner) =>
          Effect.runPromise(outcome(make, runner, coming, failure, fullAfter, wanted))
        const expected = await run(effects, runForEach)
        assert.deepStrictEqual(await run(ours, YoungStream.runChunks), expected)
        assert.deepStrictEqual(await run(ours, runForEach), expected)
        assert.deepStrictEqual(await run(effects, YoungStream.runChunks), expected)
      }
    )
  ))

it.live(
  "when a run is interrupted while it waits for a chunk, then nobody is woken, and its scope is told",
  () =>
    Effect.gen(function* () {
      const [told, script] = [Array<string>(), new Script([{ chunk: [1], way: "later" }], undefined)]
      const fiber = yield* Effect.forkChild(
        YoungStream.runChunks(ours(script, told), () => undefined),
        { startImmediately: true }
      )
      assert.isDefined(script.wake)
      yield* Fiber.interrupt(fiber)
      assert.isUndefined(script.wake)
      assert.deepStrictEqual(told, ["Failure"])
    })
)

it.live(
  "when the writer throws, then the run dies with it, at a chunk that was there and at a later one",
  () =>
    Effect.gen(function* () {
      for (const way of ["there", "later", "pulled"] as const) {
        const script = new Script([{ chunk: [1], way }], undefined)
        const exit = yield* Effect.exit(
          YoungStream.runChunks(ours(script, []), () => {
            throw new Error(way)
          })
        )
        assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause), way)
        assert.isUndefined(script.wake)
      }
    })
)

it.live("when chunks come without a question or a wait, then the fiber takes no step", () =>
  Effect.gen(function* () {
    let steps = 0
    const script = new Script(
      Array.from({ length: 100 }, (_, n) => ({ chunk: [n], way: n % 2 === 0 ? "later" : "there" })),
      undefined
    )
    const counted = YoungStream.fromSource(() => ({
      poll: () => script.poll(),
      pull: () => Effect.tap(script.pull(), () => Effect.sync(() => void (steps += 1))),
      onReady: (wake: (() => void) | undefined) => script.onReady(wake),
      close: () => undefined
    }))
    let seen = 0
    yield* YoungStream.runChunks(counted, (chunk) => {
      seen += chunk.length
      return undefined
    })
    assert.deepStrictEqual([seen, steps], [100, 0])
  })
)

it.live("when the fiber yields before it waits for a chunk, then it does not miss the chunk", () =>
  Effect.gen(function* () {
    // A step of the loop is two of the fiber, which yields when it has taken so many.
    const most = (yield* Scheduler.MaxOpsBeforeYield) / 2
    const [before, seen] = [Arr.range(most - 40, most), Array<number>()]
    for (const steps of before) {
      const run = Effect.gen(function* () {
        for (let n = 0; n < steps; n += 1) yield* Effect.suspend(() => Effect.void)
        const script = new Script([{ chunk: [steps], way: "later" }], undefined)
        yield* YoungStream.runChunks(
          YoungStream.fromSource(() => script),
          (chunk) => void seen.push(...chunk)
        )
      })
      yield* Effect.timeoutOption(run, "1 second")
    }
    assert.deepStrictEqual(seen, before)
  })
)

it("when a stream is made here, then it is one of Effect's", () => {
  const script = new Script([{ chunk: [1], way: "there" }], undefined)
  const stream = YoungStream.fromSource(() => script)
  assert.isTrue(Stream.isStream(stream))
  assert.deepStrictEqual(
    Effect.runSync(stream.pipe(Stream.concat(Stream.make(2)), Stream.map(String), Stream.runCollect)),
    ["1", "2"]
  )
})

/** How many of fifty lists that streams were made around and run are still in memory. */
const heldBy = (make: Maker, run: Runner): number =>
  heldAfter(3, (held) => {
    const script = new Script([{ chunk: [held.length], way: "there" }], undefined)
    const stream = make(script, [], ([n]) => [n + held.length])
    Effect.runSync(run(stream, () => undefined))
  })

it("when a stream has ended, then its objects are collected without a full collection", () => {
  heldBy(ours, YoungStream.runChunks)
  assert.isBelow(heldBy(ours, YoungStream.runChunks), 3)
})

it("when Effect's own stream has ended, then its objects stay until a full collection; once they do not, this folder can go", () => {
  assert.isAbove(heldBy(effects, runForEach), 40)
})
