/**
 * Random interleavings of calls, ends, keys, tenants and time against a plain model, which keeps all history where the breaker keeps
 * two keys and two tenants.
 */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Result } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import type { BreakerState, Party } from "../../src/backend/Circuit.ts"
import { CircuitBreaker, type Guarded } from "../../src/backend/CircuitBreaker.ts"
import { BackendFailed, type CircuitOpen } from "../../src/domain/Errors.ts"

const failures = 5
const openMs = 30_000

type Ending = "ok" | "fails" | "busy" | "leaves"

interface Admitted {
  readonly id: number
  readonly party: Party
  readonly era: number
  readonly probe: boolean
}

/** A streak or a probe is of one key, or of one tenant. */
const names = ["keyId", "tenantId"] as const

class Model {
  now = 0
  /** counts the times the circuit opened and closed: a result of another era is stale */
  #era = 0
  #closed = true
  #streak: Array<Party> = []
  #reopens = 0
  #probe: Admitted | undefined
  #probedLast: Party | undefined
  #calls = 0
  readonly #served: Array<{ readonly party: Party; readonly at: number }> = []
  readonly #asked: Array<{ readonly party: Party; readonly at: number }> = []

  get state(): BreakerState {
    if (this.#closed) return "closed"
    return this.#probe !== undefined || this.now >= this.#reopens ? "half-open" : "open"
  }

  /** What the call belongs to, or nothing when it is refused. */
  admit(party: Party): Admitted | undefined {
    this.#asked.push({ party, at: this.now })
    const probe = !this.#closed
    if (probe) {
      if (this.now < this.#reopens) return undefined
      const passedOver = names.some(
        (name) =>
          party[name] === this.#probedLast?.[name] &&
          this.#asked.some((one) => one.party[name] !== party[name] && this.now - one.at <= 4 * openMs)
      )
      if (passedOver && this.now < this.#reopens + openMs) return undefined
    }
    const admitted = { id: ++this.#calls, party, era: this.#era, probe }
    if (probe) {
      this.#probe = admitted
      this.#probedLast = party
      this.#reopens = this.now + openMs
    }
    return admitted
  }

  began(call: Admitted): Admitted {
    this.#served.push({ party: call.party, at: this.now })
    if (!call.probe || call.era !== this.#era) return call
    this.#close()
    return { ...call, era: this.#era, probe: false }
  }

  record(call: Admitted, outcome: "success" | "failure" | "ignored"): void {
    if (outcome === "success") this.#served.push({ party: call.party, at: this.now })
    if (call.era !== this.#era) return
    if (!this.#closed) {
      if (call.id !== this.#probe?.id) return
      if (outcome === "failure") this.#open()
      if (outcome === "ignored") {
        this.#probe = undefined
        this.#reopens = this.now
      }
    } else if (outcome === "success") this.#streak = []
    else if (outcome === "failure") {
      this.#streak.push(call.party)
      const ofOne = names.some(
        (name) =>
          this.#streak.every((one) => one[name] === call.party[name]) &&
          this.#served.some(({ at, party }) => party[name] !== call.party[name] && this.now - at <= openMs)
      )
      if (this.#streak.length >= failures && !ofOne) this.#open()
    }
  }

  #open(): void {
    this.#closed = false
    this.#era += 1
    this.#probe = undefined
    this.#reopens = this.now + openMs
  }

  #close(): void {
    this.#closed = true
    this.#era += 1
    this.#probe = undefined
    this.#streak = []
  }
}

interface Call {
  readonly admitted: Admitted
  readonly head: Deferred.Deferred<string, BackendFailed>
  readonly fiber: Fiber.Fiber<Guarded<string>, BackendFailed | CircuitOpen>
}

interface Answer {
  readonly admitted: Admitted
  readonly guarded: Guarded<string>
}

const of = (tenantId: string, keyId: string): Party => ({ keyId, tenantId })
const parties = [of("a", "a1"), of("a", "a1"), of("a", "a1"), of("a", "a2"), of("b", "b1"), of("c", "c1")]

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ does: fc.constant("call"), party: fc.constantFrom(...parties) })
  },
  {
    weight: 5,
    arbitrary: fc.record({
      does: fc.constant("head"),
      which: fc.nat(9),
      ends: fc.constantFrom<Ending>("ok", "ok", "fails", "fails", "fails", "busy", "leaves")
    })
  },
  { weight: 3, arbitrary: fc.record({ does: fc.constant("report"), which: fc.nat(9), well: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({ does: fc.constant("wait"), ms: fc.constantFrom(1, 10_000, 30_000, 90_000) })
  }
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
        const checked = Result.isSuccess(yield* Effect.result(breaker.check(next.party)))
        const guarded = breaker.guard(next.party, Deferred.await(head), counts)
        const fiber = yield* Effect.forkChild(guarded, { startImmediately: true })
        const admitted = model.admit(next.party)
        assert.strictEqual(checked, admitted !== undefined, "check and guard differ")
        if (admitted === undefined)
          assert.strictEqual((yield* Effect.flip(Fiber.join(fiber)))._tag, "CircuitOpen")
        else calls.push({ admitted, head, fiber })
      } else if (next.does === "head") {
        const call = taken(calls, next.which)
        if (call === undefined) continue
        const { admitted, fiber, head } = call
        if (next.ends === "leaves") yield* Fiber.interrupt(fiber)
        else if (next.ends === "ok") yield* Deferred.succeed(head, "frame")
        else yield* Deferred.fail(head, new BackendFailed({ fault: next.ends === "busy" ? "busy" : "cut" }))
        yield* Fiber.await(fiber)
        if (next.ends !== "ok") model.record(admitted, next.ends === "fails" ? "failure" : "ignored")
        else answers.push({ admitted: model.began(admitted), guarded: yield* Fiber.join(fiber) })
      } else if (next.does === "report") {
        const answer = taken(answers, next.which)
        yield* answer?.guarded.report(next.well ? "success" : "failure") ?? Effect.void
        if (answer !== undefined) model.record(answer.admitted, next.well ? "success" : "failure")
      } else {
        yield* TestClock.adjust(next.ms)
        model.now += next.ms
      }
      assert.strictEqual(yield* breaker.state, model.state)
    }
    for (const { fiber } of calls) yield* Fiber.interrupt(fiber)
  })

  describe(`CircuitBreaker: ${name}: any interleaving`, () => {
    it.effect("when calls come and end in any order, then it answers as the model does", () =>
      Effect.gen(function* () {
        const context = yield* Effect.context<never>()
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 80, size: "max" }), (steps) =>
              Effect.runPromiseWith(context)(
                Effect.provide(play(steps), Layer.provideMerge(Layer.fresh(layer), TestClock.layer()))
              )
            ),
            { numRuns: 300 }
          )
        )
      })
    )
  })
}
