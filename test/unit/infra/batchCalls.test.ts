/** Calls that are gathered: which are sent together, and what becomes of failures. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { batchCalls } from "../../../src/infra/batchCalls.ts"
import { testWith } from "../../support/testWith.ts"

const make = () => {
  const sent: Array<string> = []
  const call = batchCalls<string, string, string>({
    most: 3,
    mayBeOfOne: (error) => error === "bad call",
    send: (calls) => {
      sent.push(calls.join())
      if (calls.includes("y broken")) return Effect.fail("lost")
      if (calls.includes("w bad")) return Effect.fail("bad call")
      return Effect.succeed(calls.includes("z short") ? [] : calls.map((call) => call.toUpperCase()))
    }
  })
  return { sent, call }
}

const atOnce = <A, E>(effects: ReadonlyArray<Effect.Effect<A, E>>) =>
  Effect.forEach(effects, Effect.exit, { concurrency: "unbounded" })

const test = testWith(it.live)

describe("calls of one turn of the event loop", () => {
  test("when they come, then as many as may be are sent together, and each gets its answer", function* () {
    const { call, sent } = make()
    const exits = yield* atOnce(["x1", "x2", "x3", "x4"].map(call))
    assert.deepStrictEqual(sent, ["x1,x2,x3", "x4"])
    assert.deepStrictEqual(exits, ["X1", "X2", "X3", "X4"].map(Exit.succeed))
    assert.strictEqual(yield* call("x5"), "X5")
    assert.deepStrictEqual(sent.slice(2), ["x5"])
  })

  test("when sending fails, then its callers fail, no others, and each may call again at once", function* () {
    const { call } = make()
    const again = Effect.catch(call("y broken"), () => call("y2"))
    const [one, two, , other, , , short] = yield* atOnce([
      again,
      ...["y1", "y3", "x1", "x2", "x3", "z short"].map(call)
    ])
    assert.deepStrictEqual([one, two, other], [Exit.succeed("Y2"), Exit.fail("lost"), Exit.succeed("X1")])
    assert.isTrue(short !== undefined && Exit.hasDies(short))
  })

  test("when one of them may have caused the error, then each is sent alone, and it fails alone", function* () {
    const { call, sent } = make()
    const exits = yield* atOnce(["w1", "w bad", "w2"].map(call))
    assert.deepStrictEqual(exits, [Exit.succeed("W1"), Exit.fail("bad call"), Exit.succeed("W2")])
    assert.deepStrictEqual(sent, ["w1,w bad,w2", "w1", "w bad", "w2"])
  })

  test("when a call is only described, then nothing is sent; when it is run twice, then it is sent twice", function* () {
    const { call, sent } = make()
    const described = call("x1")
    yield* call("y1")
    assert.deepStrictEqual(sent, ["y1"])
    yield* atOnce([described, described])
    assert.deepStrictEqual(sent, ["y1", "x1,x1"])
  })
})
