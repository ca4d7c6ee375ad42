import { assert, it } from "@effect/vitest"
import { Result } from "effect"
import { resultFn } from "../../../../src/infra/v8/resultFn.ts"
import { heldAfter } from "../../../support/youngGarbage.ts"

type List = ReadonlyArray<number>

const lengthOf = (list: List): Result.Result<number, string> =>
  list.length === 0 ? Result.fail("empty") : Result.succeed(list.length)

const ours = resultFn(function* (list: List, more: number) {
  return (yield* lengthOf(list)) + more
})

const writtenInside = (list: List, more: number) =>
  Result.gen(function* () {
    return (yield* lengthOf(list)) + more
  })

it("when a step of the generator fails, then the result is that failure; else what it returns", () => {
  for (const decide of [ours, writtenInside]) {
    assert.deepStrictEqual([decide([1], 1), decide([], 1)], [Result.succeed(2), Result.fail("empty")])
  }
})

it("when it has returned, then what it was called with is collected without a full collection", () => {
  const use = (list: List) => void ours(list, 1)
  heldAfter(3, use)
  assert.isBelow(heldAfter(3, use), 3)
})

it("when a generator function is written inside a function, then it stays until a full collection; once it does not, ours can go", () => {
  assert.isAbove(
    heldAfter(3, (list) => void writtenInside(list, 1)),
    40
  )
})
