/**
 * The circuit breaker under any interleaving of calls: no tenant's requests, whatever they do, have another one's refused while the
 * model server serves it. An outage closes the house, and nobody keeps it closed afterwards.
 */
import { assert, it } from "@effect/vitest"
import { Cause, Clock, Deferred, Effect, Exit, Fiber, Layer, Logger, type Scope } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { type Begun, guarded } from "../support/guarded.ts"
import { CircuitBreaker, layerCircuitBreaker, type Verdict } from "../../src/backend/CircuitBreaker.ts"

const [failures, openMs] = [5, 30_000]
const keys = ["a/1", "a/2", "b/1", "b/2", "c/1", "c/2", "d/1"] as const
const partyOf = (keyId: string) => {
  const [tenantId = ""] = keyId.split("/")
  return { keyId, keyPrefix: keyId, tenantId, tenantName: tenantId }
}

const requestEnds = ["success", "failure", "failure", "failure", "ignored"] as const
const which = fc.nat({ max: 11 })
const key = fc.constantFrom(...keys)
const stepOf = (ends: ReadonlyArray<Verdict | "success">) =>
  fc.oneof(
    { weight: 4, arbitrary: fc.record({ does: fc.constant("ask" as const), key }) },
    { weight: 2, arbitrary: fc.record({ does: fc.constant("frame" as const), which }) },
    {
      weight: 5,
      arbitrary: fc.record({ does: fc.constant("end" as const), which, as: fc.constantFrom(...ends) })
    },
    { weight: 3, arbitrary: fc.record({ does: fc.constant("fail five times" as const), key }) },
    {
      weight: 1,
      arbitrary: fc.record({
        does: fc.constant("wait" as const),
        ms: fc.constantFrom(1, 500, 9_999, 10_000, 15_000, 29_999, 30_000, 60_000)
      })
    }
  )
type Step = typeof stepOf extends (...args: never) => fc.Arbitrary<infer A> ? A : never

interface Running {
  readonly key: string
  readonly head: Deferred.Deferred<string, Verdict>
  readonly fiber: Fiber.Fiber<Exit.Exit<Begun<Verdict>, unknown>>
  /** how often the circuit of its key may have closed before it began */
  closed: number
  guarded?: Begun<Verdict>
}

const makeWorld = Effect.fnUntraced(function* (hasOutages: boolean) {
  const breaker = yield* CircuitBreaker
  const { state } = breaker
  const running: Array<Running> = []
  /** by tenant: the time of its last frame */
  const servedAt = new Map<string, number>()
  /** by key: its failures since its last success, and how often its circuit may have closed; the end of an older call is ignored */
  const own = new Map<string, { failed: number; closed: number }>(
    keys.map((name) => [name, { failed: 0, closed: 0 }])
  )
  const ownOf = (name: string) => own.get(name) ?? { failed: 0, closed: 0 }
  const served = (name: string) =>
    Effect.map(Clock.currentTimeMillis, (now) => void servedAt.set(partyOf(name).tenantId, now))

  /** Begins a call; undefined: it is refused. */
  const ask = Effect.fnUntraced(function* (name: string) {
    const head = yield* Deferred.make<string, Verdict>()
    const call = guarded(breaker, partyOf(name), Deferred.await(head), (verdict: Verdict) => verdict)
    const fiber = yield* Effect.forkChild(Effect.exit(call), { startImmediately: true })
    const early = fiber.pollUnsafe()
    if (early !== undefined) return undefined
    const one: Running = { key: name, head, fiber, closed: ownOf(name).closed }
    running.push(one)
    return one
  })

  const frame = Effect.fnUntraced(function* (one: Running) {
    yield* served(one.key)
    if (one.guarded !== undefined) return yield* one.guarded.heard
    yield* Deferred.succeed(one.head, "frame")
    const of = ownOf(one.key)
    // A first frame closes the circuit of its key, if it was open.
    if (of.failed >= failures) {
      of.failed = 0
      of.closed += 1
      one.closed = of.closed
    }
    const exit = yield* Fiber.join(one.fiber)
    if (Exit.isSuccess(exit)) one.guarded = exit.value
    return assert.isTrue(Exit.isSuccess(exit))
  })

  const end = Effect.fnUntraced(function* (one: Running, as: Verdict | "success") {
    running.splice(running.indexOf(one), 1)
    if (as === "success" && one.guarded === undefined) yield* frame(one)
    const of = ownOf(one.key)
    if (one.closed === of.closed) {
      if (as === "success" && of.failed < failures) of.failed = 0
      if (as === "failure") of.failed += 1
    }
    if (one.guarded === undefined && as === "ignored") return yield* Fiber.interrupt(one.fiber)
    if (one.guarded !== undefined)
      return yield* one.guarded.ended(as === "success" ? Exit.void : Exit.failCause(Cause.fail<Verdict>(as)))
    if (as !== "success") yield* Deferred.fail(one.head, as)
    return yield* Effect.asVoid(Fiber.await(one.fiber))
  })

  /** A refusal that the key itself has caused, or that comes while its tenant is not being served. */
  const mayBeRefused = (name: string, at: number): boolean =>
    hasOutages ||
    ownOf(name).failed >= failures ||
    at - (servedAt.get(partyOf(name).tenantId) ?? Number.NEGATIVE_INFINITY) >= openMs

  const take = Effect.fnUntraced(function* (step: Step) {
    if (step.does === "wait") return yield* TestClock.adjust(step.ms)
    if (step.does === "ask" || step.does === "fail five times") {
      const asked: Array<Running> = []
      for (let n = 0; n < (step.does === "ask" ? 1 : failures); n += 1) {
        const one = yield* ask(step.key)
        if (one !== undefined) asked.push(one)
        else if (!mayBeRefused(step.key, yield* Clock.currentTimeMillis))
          return assert.fail(`${step.key} is refused, and its tenant is being served`)
      }
      if (step.does === "fail five times") for (const one of asked) yield* end(one, "failure")
      return undefined
    }
    const one = running[step.which % Math.max(1, running.length)]
    if (one === undefined) return undefined
    // What has begun is no outage any more.
    if (step.does === "end")
      return yield* end(one, step.as === "outage" && one.guarded !== undefined ? "failure" : step.as)
    return yield* frame(one)
  })

  return { ask, end, frame, state, take }
})
type World = Effect.Success<ReturnType<typeof makeWorld>>

const quiet = Layer.merge(TestClock.layer(), Logger.layer([]))

/** Plays random steps, each time in a world of its own. An outage refuses everybody. */
const always = (
  ends: ReadonlyArray<Verdict | "success">,
  then: (world: World) => Effect.Effect<void, unknown, Scope.Scope> = () => Effect.void
) =>
  Effect.promise(() =>
    fc.assert(
      fc.asyncProperty(fc.array(stepOf(ends), { minLength: 5, maxLength: 80 }), (steps) =>
        Effect.gen(function* () {
          const world = yield* makeWorld(ends.includes("outage"))
          for (const step of steps) yield* world.take(step)
          yield* then(world)
        }).pipe(
          Effect.scoped,
          Effect.provide(Layer.provideMerge(layerCircuitBreaker({ failures, openMs }), quiet)),
          Effect.runPromise
        )
      ),
      { numRuns: 400 }
    )
  )

it.live("when tenants do whatever they can, then none that is served is refused for what others do", () =>
  always(requestEnds)
)

it.live(
  "when an outage comes, then it closes the house after five failures; when it is over, nobody keeps it closed",
  () =>
    always([...requestEnds, "outage"], ({ ask, end, frame, state }) =>
      Effect.gen(function* () {
        // Nobody of the past has to be served.
        for (let n = 0; n < failures; n += 1) {
          const one = yield* ask(`new-${n}/1`)
          if (one === undefined) break
          yield* end(one, "outage")
        }
        assert.strictEqual(yield* state, "open")
        assert.isUndefined(yield* ask("honest/1"))
        // Afterwards all others try, and fail or hang.
        let waitedMs = 0
        let served = yield* ask("honest/1")
        while (served === undefined && waitedMs < openMs) {
          yield* TestClock.adjust(1000)
          waitedMs += 1000
          for (const name of keys) {
            const one = yield* ask(name)
            if (one !== undefined && name.endsWith("1")) yield* end(one, "failure")
          }
          served = yield* ask("honest/1")
        }
        if (served === undefined) return assert.fail("others keep it closed to the honest one")
        yield* frame(served)
        assert.strictEqual(yield* state, "closed")
        return assert.isDefined(yield* ask("another/1"))
      })
    )
)
