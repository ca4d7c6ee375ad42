/**
 * Random interleavings of calls, ends and time against the plain model: whatever the breaker spares itself while nothing
 * speaks against the backend, it answers as one that asks every time.
 */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { type BreakerState, CircuitBreaker, type Guarded } from "../../src/backend/CircuitBreaker.ts"
import { BackendFailed } from "../../src/domain/Errors.ts"

const failures = 5
const openMs = 30_000

type Ending = "ok" | "fails" | "busy" | "leaves"

class Model {
  #state: { is: "closed"; streak: number } | { is: "open"; until: number } | { is: "half"; probing: boolean }
  #generation = 0
  now = 0

  constructor() {
    this.#state = { is: "closed", streak: 0 }
  }

  get state(): BreakerState {
    if (this.#state.is === "closed") return "closed"
    return this.#state.is === "open" && this.now < this.#state.until ? "open" : "half-open"
  }

  /** The generation it belongs to, or nothing when it is refused. */
  admit(): { readonly generation: number; readonly probe: boolean } | undefined {
    if (this.#state.is === "open") {
      if (this.now < this.#state.until) return undefined
      this.#state = { is: "half", probing: false }
    }
    if (this.#state.is === "closed") return { generation: this.#generation, probe: false }
    if (this.#state.probing) return undefined
    this.#state.probing = true
    this.#generation += 1
    return { generation: this.#generation, probe: true }
  }

  record(generation: number, outcome: "success" | "failure" | "ignored"): void {
    if (generation !== this.#generation) return
    if (this.#state.is === "half") {
      if (outcome === "ignored") this.#state.probing = false
      else if (outcome === "failure") this.#open()
      else {
        this.#state = { is: "closed", streak: 0 }
        this.#generation += 1
      }
    } else if (this.#state.is === "closed") {
      if (outcome === "success") this.#state.streak = 0
      else if (outcome === "failure" && ++this.#state.streak >= failures) this.#open()
    }
  }

  #open(): void {
    this.#state = { is: "open", until: this.now + openMs }
    this.#generation += 1
  }
}

interface Call {
  readonly generation: number
  readonly probe: boolean
  readonly head: Deferred.Deferred<string, BackendFailed>
  readonly fiber: Fiber.Fiber<Guarded<string>, BackendFailed>
}

interface Answer {
  readonly generation: number
  readonly guarded: Guarded<string>
}

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ does: fc.constant("call") }) },
  {
    weight: 5,
    arbitrary: fc.record({
      does: fc.constant("head"),
      which: fc.nat(9),
      ends: fc.constantFrom<Ending>("ok", "ok", "fails", "fails", "fails", "busy", "leaves")
    })
  },
  { weight: 3, arbitrary: fc.record({ does: fc.constant("report"), which: fc.nat(9), well: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("wait"), ms: fc.constantFrom(1, 10_000, 30_000) }) }
)

type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

const taken = <A>(from: Array<A>, which: number): A | undefined =>
  from.length === 0 ? undefined : from.splice(which % from.length, 1)[0]

/** The layer under test opens after 5 failures, for 30 s. */
export const properties = (name: string, layer: Layer.Layer<CircuitBreaker>): void => {
  const play = Effect.fnUntraced(function* (steps: ReadonlyArray<Step>) {
    const [breaker, model] = [yield* CircuitBreaker, new Model()]
    const [calls, answers]: [Array<Call>, Array<Answer>] = [[], []]
    const counts = (error: BackendFailed) => error.fault !== "busy"
    for (const next of steps) {
      if (next.does === "call") {
        const head = yield* Deferred.make<string, BackendFailed>()
        const guarded = breaker.guard(Deferred.await(head), counts)
        const fiber = yield* Effect.forkChild(guarded, { startImmediately: true })
        const admitted = model.admit()
        if (admitted === undefined)
          assert.strictEqual((yield* Effect.flip(Fiber.join(fiber))).fault, "circuit-open")
        else calls.push({ ...admitted, head, fiber })
      } else if (next.does === "head") {
        const call = taken(calls, next.which)
        if (call === undefined) continue
        const { fiber, generation, head, probe } = call
        if (next.ends === "leaves") yield* Fiber.interrupt(fiber)
        else if (next.ends === "ok") yield* Deferred.succeed(head, "frame")
        else yield* Deferred.fail(head, new BackendFailed({ fault: next.ends === "busy" ? "busy" : "cut" }))
        yield* Fiber.await(fiber)
        if (next.ends !== "ok") model.record(generation, next.ends === "fails" ? "failure" : "ignored")
        else {
          if (probe) model.record(generation, "success")
          const own = probe ? model.admit()?.generation : generation
          answers.push({ generation: own ?? Number.NaN, guarded: yield* Fiber.join(fiber) })
        }
      } else if (next.does === "report") {
        const answer = taken(answers, next.which)
        yield* answer?.guarded.report(next.well ? "success" : "failure") ?? Effect.void
        if (answer !== undefined) model.record(answer.generation, next.well ? "success" : "failure")
      } else {
        yield* TestClock.adjust(next.ms)
        model.now += next.ms
      }
      assert.strictEqual(yield* breaker.state, model.state)
    }
    for (const { fiber } of calls) yield* Fiber.interrupt(fiber)
  })

  describe(`CircuitBreaker: ${name}: any interleaving`, () => {
    it.effect("answers as a model that forgets nothing", () =>
      Effect.gen(function* () {
        const context = yield* Effect.context<never>()
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 80, size: "max" }), (steps) =>
              Effect.runPromiseWith(context)(
                Effect.provide(play(steps), [Layer.fresh(layer), TestClock.layer()])
              )
            ),
            { numRuns: 300 }
          )
        )
      })
    )
  })
}
