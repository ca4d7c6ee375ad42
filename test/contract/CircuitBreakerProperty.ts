/** Random interleavings of calls, ends, keys and time against a plain model: one record for everybody and one for each key. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Result } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import type { BreakerState } from "../../src/backend/Circuit.ts"
import { CircuitBreaker, type Guarded, type Verdict } from "../../src/backend/CircuitBreaker.ts"
import { BackendFailed, type CircuitOpen } from "../../src/domain/Errors.ts"
import { partyOf, verdictOf } from "./CircuitBreaker.ts"

const failures = 5
const openMs = 30_000

/** One circuit. An era begins each time that it opens for all its calls, or closes. */
interface Line {
  era: number
  /** who failed since the last success; "server" is nobody */
  streak: Array<string>
  reopensAt: number | undefined
  probe: number | undefined
}

/** A call with the era of each line, and whether it is the probe of it. */
interface Admitted {
  readonly id: number
  readonly key: string
  all: { readonly era: number; readonly probe: boolean }
  own: { readonly era: number; readonly probe: boolean }
}

const newLine = (): Line => ({ era: 0, streak: [], reopensAt: undefined, probe: undefined })

class Model {
  now = 0
  #calls = 0
  readonly #all = newLine()
  readonly #keys = new Map<string, Line>()

  #own(key: string): Line {
    const line = this.#keys.get(key) ?? newLine()
    this.#keys.set(key, line)
    return line
  }

  #stateOf({ probe, reopensAt }: Line): BreakerState {
    if (reopensAt === undefined) return "closed"
    return probe !== undefined || this.now >= reopensAt ? "half-open" : "open"
  }

  get state(): BreakerState {
    return this.#stateOf(this.#all)
  }

  get openKeys(): number {
    return [...this.#keys.values()].filter((line) => this.#stateOf(line) === "open").length
  }

  admit(key: string): Admitted | undefined {
    const lines = [this.#all, this.#own(key)] as const
    if (lines.some(({ reopensAt }) => reopensAt !== undefined && this.now < reopensAt)) return undefined
    const id = ++this.#calls
    const [all, own] = [this.#enter(lines[0], id), this.#enter(lines[1], id)]
    return { id, key, all, own }
  }

  #enter(line: Line, id: number) {
    const probe = line.reopensAt !== undefined
    if (probe) Object.assign(line, { probe: id, reopensAt: this.now + openMs })
    return { era: line.era, probe }
  }

  began(call: Admitted): void {
    const began = (line: Line, { era, probe }: Admitted["all"]) => {
      if (!probe || era !== line.era) return { era, probe }
      this.#close(line)
      return { era: line.era, probe: false }
    }
    call.all = began(this.#all, call.all)
    call.own = began(this.#own(call.key), call.own)
  }

  record(call: Admitted, end: Verdict | "success"): void {
    const table = {
      success: { all: "success", own: "success" },
      ignored: { all: "ignored", own: "ignored" },
      outage: { all: "server", own: "ignored" },
      failure: { all: call.own.probe ? "ignored" : call.key, own: "server" }
    }
    this.#record(this.#all, call.all, call.id, table[end].all)
    this.#record(this.#own(call.key), call.own, call.id, table[end].own)
  }

  /** `end`: success, ignored, or whose failure it is */
  #record(line: Line, { era }: Admitted["all"], id: number, end: string): void {
    if (era !== line.era) return
    if (line.reopensAt !== undefined) {
      if (end === "success") this.#close(line)
      else if (id === line.probe) {
        Object.assign(line, { probe: undefined, reopensAt: end === "ignored" ? this.now : this.now + openMs })
      }
    } else if (end === "success") line.streak = []
    else if (end !== "ignored") {
      line.streak.push(end)
      const isOfOneKey = end !== "server" && line.streak.every((one) => one === end)
      if (line.streak.length >= failures && !isOfOneKey)
        Object.assign(line, { era: line.era + 1, reopensAt: this.now + openMs })
    }
  }

  #close(line: Line): void {
    Object.assign(line, { ...newLine(), era: line.era + 1 })
  }
}

interface Call {
  readonly admitted: Admitted
  readonly head: Deferred.Deferred<string, BackendFailed>
  readonly fiber: Fiber.Fiber<Guarded<string, BackendFailed>, BackendFailed | CircuitOpen>
}

interface Answer {
  readonly admitted: Admitted
  readonly guarded: Guarded<string, BackendFailed>
}

const faults = { fails: "cut", "is away": "unreachable", busy: "busy" } as const
type Ending = "ok" | "leaves" | keyof typeof faults

const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ does: fc.constant("call"), key: fc.constantFrom("a", "a", "a", "b", "c") })
  },
  {
    weight: 5,
    arbitrary: fc.record({
      does: fc.constant("head"),
      which: fc.nat(9),
      ends: fc.constantFrom<Ending>(
        "ok",
        "ok",
        "fails",
        "fails",
        "fails",
        "fails",
        "is away",
        "busy",
        "leaves"
      )
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
    for (const next of steps) {
      if (next.does === "call") {
        const head = yield* Deferred.make<string, BackendFailed>()
        const party = partyOf(next.key)
        const checked = Result.isSuccess(yield* Effect.result(breaker.check(party)))
        const guarded = breaker.guard(party, Deferred.await(head), verdictOf)
        const fiber = yield* Effect.forkChild(guarded, { startImmediately: true })
        const admitted = model.admit(next.key)
        assert.strictEqual(checked, admitted !== undefined, "check and guard differ")
        if (admitted === undefined)
          assert.strictEqual((yield* Effect.flip(Fiber.join(fiber)))._tag, "CircuitOpen")
        else calls.push({ admitted, head, fiber })
      } else if (next.does === "head") {
        const call = taken(calls, next.which)
        if (call === undefined) continue
        const { admitted, fiber, head } = call
        if (next.ends === "ok") {
          yield* Deferred.succeed(head, "frame")
          answers.push({ admitted, guarded: yield* Fiber.join(fiber) })
          model.began(admitted)
        } else if (next.ends === "leaves") {
          yield* Fiber.interrupt(fiber)
          model.record(admitted, "ignored")
        } else {
          const error = new BackendFailed({ fault: faults[next.ends] })
          yield* Deferred.fail(head, error)
          yield* Fiber.await(fiber)
          model.record(admitted, verdictOf(error))
        }
      } else if (next.does === "report") {
        const answer = taken(answers, next.which)
        if (answer === undefined) continue
        yield* answer.guarded.report(next.well ? Exit.void : Exit.fail(new BackendFailed({ fault: "cut" })))
        model.record(answer.admitted, next.well ? "success" : "failure")
      } else {
        yield* TestClock.adjust(next.ms)
        model.now += next.ms
      }
      assert.deepStrictEqual([yield* breaker.state, yield* breaker.openKeys], [model.state, model.openKeys])
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
