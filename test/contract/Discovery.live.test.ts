import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { describe } from "vitest"
import * as Metrics from "../../src/observability/Metrics.ts"
import { layerCircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { layerMemory } from "../support/twins/Backend.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import { BackendFailed } from "../../src/domain/Errors.ts"
import type { Description, Model } from "../../src/domain/Model.ts"
import { Discovery } from "../../src/gates/models/Discovery.ts"
import { layerPolling } from "../../src/gates/models/polling.ts"
import { layerNone as layerNoQueue } from "../../src/gates/queue/fromStore.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { verified, modelNamed } from "../support/permits.ts"
import { onWallClock, WallClock } from "../support/SteppedClock.ts"
import { type Steps, testWith } from "../support/testWith.ts"
import { bareModel, effective, resolved, suite } from "./Discovery.ts"

type Describe = (name: string) => Effect.Effect<Description, BackendFailed>

const untold: Describe = () => new BackendFailed({ fault: "status" })

const polling = (models: Effect.Effect<ReadonlyArray<Model>, BackendFailed>, describe: Describe = untold) =>
  layerPolling({ refreshS: 30, ttlS: 120 }).pipe(
    Layer.provide(
      layerMemory({ models, describe, reply: () => new BackendFailed({ fault: "unreachable" }) })
    ),
    Layer.provide([
      layerNoQueue,
      layerCircuitBreaker({ failures: 5, openMs: 30_000 }),
      Drain.layer,
      Metrics.layer
    ])
  )

suite("polling", (installed, test, descriptions) =>
  Effect.provide(
    test,
    polling(Effect.succeed(installed), (name) => {
      const description = descriptions[name]
      return description === undefined ? untold(name) : Effect.succeed(description)
    })
  )
)

/** A backend whose list and health a test changes as it goes. */
class Host {
  names: ReadonlyArray<string> = ["a:1"]
  state: "up" | "down" | "hanging" | "broken" = "up"
  polls = 0
  readonly models = Effect.suspend((): Effect.Effect<ReadonlyArray<Model>, BackendFailed> => {
    this.polls += 1
    switch (this.state) {
      case "up":
        return Effect.succeed(this.names.map(modelNamed))
      case "down":
        return new BackendFailed({ fault: "unreachable" })
      case "hanging":
        return Effect.never
      case "broken":
        return Effect.die(new Error("a bug"))
    }
  })
}

const test = (title: string, steps: Steps<Discovery, [host: Host]>) =>
  it.effect(title, () =>
    Effect.suspend(() => {
      const host = new Host()
      return Effect.provide(
        Effect.gen(() => steps(host)),
        polling(host.models)
      )
    })
  )

for (const hours of [-1, 1]) {
  it.effect(`when the wall clock is set by ${hours} h, then a list expires as it would have`, () =>
    Effect.suspend(() => {
      const host = new Host()
      return Effect.gen(function* () {
        const { step } = yield* WallClock
        host.state = "down"
        yield* TestClock.adjust("60 seconds")
        yield* step(hours * 3_600_000)
        yield* TestClock.adjust("60 seconds")
        assert.strictEqual(yield* resolved("all", "a:1"), "a:1")
        yield* TestClock.adjust("1 seconds")
        assert.strictEqual(yield* resolved("all", "a:1"), "forbidden model")
      }).pipe(Effect.provide(onWallClock(polling(host.models)).pipe(Layer.provideMerge(WallClock.layer))))
    })
  )
}

describe("Discovery: what the list leaves out", () => {
  /** Counts what is asked at the same time and in all. */
  class Describing {
    names: Array<string> = []
    under = 0
    most = 0
    answer: Effect.Effect<Description, BackendFailed> = Effect.succeed({ capabilities: [], contextLength: 1 })
    readonly describe: Describe = (name) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          this.names.push(name)
          this.under += 1
          this.most = Math.max(this.most, this.under)
        }),
        () => Effect.delay(this.answer, "1 millis"),
        () => Effect.sync(() => void (this.under -= 1))
      )
  }

  it.effect("when a digest is new, then its description is asked for, once and one after another", () =>
    Effect.suspend(() => {
      const host = new Describing()
      let list = [bareModel("a:1", "one"), bareModel("a:2", "one"), bareModel("b:1", "two")]
      const models = Effect.sync(() => list)
      return Effect.gen(function* () {
        yield* TestClock.adjust("10 minutes")
        assert.deepStrictEqual(host.names, ["a:2", "b:1"])
        assert.strictEqual(host.most, 1)
        const { effective: all } = yield* Discovery
        assert.deepStrictEqual(
          (yield* all(verified())).map(({ model }) => model.contextLength),
          [1, 1, 1]
        )
        list = [bareModel("a:1", "three")]
        yield* TestClock.adjust("1 minutes")
        // The digest that was gone is forgotten.
        list = [bareModel("a:1", "one")]
        yield* TestClock.adjust("1 minutes")
        assert.deepStrictEqual(host.names, ["a:2", "b:1", "a:1", "a:1"])
      }).pipe(Effect.provide(polling(models, host.describe)))
    })
  )

  for (const [how, answer] of [
    ["fails", new BackendFailed({ fault: "status" })],
    ["hangs", Effect.never],
    ["breaks", Effect.die(new Error("a bug"))]
  ] as const) {
    it.effect(`when it ${how}, then the list is there and polled in time, and it is seldom asked again`, () =>
      Effect.suspend(() => {
        const host = new Describing()
        host.answer = answer
        let polls = 0
        const models = Effect.sync(() => {
          polls += 1
          return [bareModel("a:1"), bareModel("b:1")]
        })
        return Effect.gen(function* () {
          assert.deepStrictEqual(yield* effective("all"), ["a:1", "b:1"])
          yield* TestClock.adjust("4 minutes")
          assert.deepStrictEqual(yield* effective("all"), ["a:1", "b:1"])
          assert.strictEqual(polls, 9)
          assert.deepStrictEqual(host.names, ["a:1", "b:1"])
          host.answer = Effect.succeed({ contextLength: 7 })
          yield* TestClock.adjust("2 minutes")
          assert.deepStrictEqual(host.names, ["a:1", "b:1", "a:1", "b:1"])
        }).pipe(Effect.provide(polling(models, host.describe)))
      })
    )
  }

  it.effect("when there are more than two hundred models, then a poll describes two hundred", () =>
    Effect.suspend(() => {
      const host = new Describing()
      const models = Effect.succeed(Array.from({ length: 450 }, (_, i) => bareModel(`m:${i}`)))
      return Effect.gen(function* () {
        yield* TestClock.adjust("29 seconds")
        assert.strictEqual(host.names.length, 200)
        yield* TestClock.adjust("2 minutes")
        assert.strictEqual(host.names.length, 450)
      }).pipe(Effect.provide(polling(models, host.describe)))
    })
  )
})

describe("Discovery: polling in time", () => {
  test("when a model is added or removed, then that is known within one interval", function* (host) {
    assert.deepStrictEqual(yield* effective("all"), ["a:1"])
    host.names = ["b:1"]
    yield* TestClock.adjust("29 seconds")
    assert.deepStrictEqual(yield* effective("all"), ["a:1"])
    yield* TestClock.adjust("1 seconds")
    assert.deepStrictEqual(yield* effective("all"), ["b:1"])
    assert.strictEqual(yield* resolved("all", "a:1"), "forbidden model")
    assert.strictEqual(host.polls, 2)
  })

  for (const state of ["down", "hanging", "broken"] as const) {
    test(`when the backend is ${state}, then the list stays until it expires, then all is denied, and it recovers`, function* (host) {
      host.state = state
      yield* TestClock.adjust("120 seconds")
      assert.strictEqual(yield* resolved("all", "a:1"), "a:1")
      yield* TestClock.adjust("1 seconds")
      assert.strictEqual(yield* resolved("all", "a:1"), "forbidden model")
      assert.deepStrictEqual(yield* effective("all"), [])
      assert.isTrue((yield* Discovery).isExpired())
      host.state = "up"
      yield* TestClock.adjust("35 seconds")
      assert.strictEqual(yield* resolved("all", "a:1"), "a:1")
      assert.isFalse((yield* Discovery).isExpired())
    })
  }

  test("when many requests ask for a new list, then it is read once, and not again for five seconds", function* (host) {
    const { refresh } = yield* Discovery
    host.names = []
    for (let i = 0; i < 100; i += 1) yield* refresh
    assert.strictEqual(host.polls, 1)
    yield* TestClock.adjust("4999 millis")
    assert.strictEqual(host.polls, 1)
    yield* TestClock.adjust("1 millis")
    assert.strictEqual(host.polls, 2)
    assert.deepStrictEqual(yield* effective("all"), [])
    yield* TestClock.adjust("29 seconds")
    assert.strictEqual(host.polls, 2)
    // However often it is asked, in a minute there are no more than twelve.
    for (let i = 0; i < 600; i += 1) {
      yield* refresh
      yield* TestClock.adjust("100 millis")
    }
    assert.isAtMost(host.polls, 15)
  })

  testWith(it.effect)("when polling fails, then the log says why and not where the backend is", function* () {
    const lines: Array<string> = []
    const ear = Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
    const refused = Object.assign(new Error("connect ECONNREFUSED 10.1.2.3:11434"), {
      code: "ECONNREFUSED"
    })
    const cause = new Error("fetch failed for 10.1.2.3", { cause: refused })
    const failing = Effect.fail(new BackendFailed({ fault: "unreachable", cause }))
    yield* effective("all").pipe(Effect.provide(Layer.provide(polling(failing), Logger.layer([ear]))))
    assert.strictEqual(lines.length, 2)
    assert.include(lines[0], '"message":"model discovery failed","fault":"unreachable","code":"ECONNREFUSED"')
    assert.include(lines[1], '"message":"model list expired, every model is denied","age_s":"never listed"')
    assert.notInclude(lines.join(), "10.1.2.3")
  })

  testWith(it.effect)(
    "when the list expires, then the log says so once, and again when it is in force",
    function* () {
      const host = new Host()
      const lines: Array<string> = []
      const ear = Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
      const about = () => lines.filter((line) => line.includes("model list"))
      yield* Effect.gen(function* () {
        yield* TestClock.adjust("1 seconds")
        host.state = "down"
        yield* TestClock.adjust("115 seconds")
        assert.deepStrictEqual(about(), [])
        yield* TestClock.adjust("10 minutes")
        assert.lengthOf(about(), 1)
        assert.match(about()[0] ?? "", /"message":"model list expired, every model is denied","age_s":12\d/)
        host.state = "up"
        yield* TestClock.adjust("6 seconds")
        assert.lengthOf(about(), 2)
      }).pipe(Effect.provide(Layer.provide(polling(host.models), Logger.layer([ear]))))
    }
  )
})
