import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock, TestConsole } from "effect/testing"
import { watchForServer } from "../../../src/startup/dependencies.ts"
import { testWith } from "../../support/testWith.ts"

const test = testWith(it.effect)

test("when a model server comes after the demo was started, then it is said once", function* () {
  let [asked, there] = [0, false]
  const ask = Effect.sync(() => {
    asked += 1
    return there
  })
  yield* Effect.forkChild(watchForServer(ask), { startImmediately: true })
  yield* TestClock.adjust("1 minute")
  assert.strictEqual(asked, 13)
  assert.lengthOf(yield* TestConsole.logLines, 0)
  there = true
  yield* TestClock.adjust("1 minute")
  assert.strictEqual(asked, 14)
  const lines = (yield* TestConsole.logLines).map(String)
  assert.lengthOf(lines, 1)
  assert.match(lines[0] ?? "", /A model server answers at http:\/\/127\.0\.0\.1:11434 now/)
})
