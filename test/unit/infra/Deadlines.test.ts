/** Deadlines of one duration share a timer: each is called once, in order, or never. */
import { assert, it } from "@effect/vitest"
import { Deadlines } from "../../../src/infra/Deadlines.ts"
import { heldAfter } from "../../support/youngGarbage.ts"

const after = (ms: number): Promise<void> => new Promise((resolve) => void setTimeout(resolve, ms))
const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length

it("when deadlines are over, then those that were not cancelled are called, in order and not before their time", async () => {
  const deadlines = new Deadlines(40)
  const called: Array<string> = []
  const begun = performance.now()
  const cancelFirst = deadlines.add(() => called.push("first"))
  deadlines.add(() => called.push("second"))
  const cancelThird = deadlines.add(() => called.push("third"))
  await after(20)
  await new Promise<void>((resolve) => {
    deadlines.add(() => {
      called.push(`last, after ${performance.now() - begun >= 58 ? "60" : "less than 58"} ms`)
      resolve()
    })
    cancelFirst()
    cancelThird()
    cancelThird()
  })
  assert.deepStrictEqual(called, ["second", "last, after 60 ms"])
})

it("when the callback of one cancels another that is over too, then that one is not called", async () => {
  const deadlines = new Deadlines(5)
  const called: Array<string> = []
  const cancels: Array<() => void> = []
  deadlines.add(() => {
    called.push("first")
    for (const cancel of cancels) cancel()
  })
  cancels.push(deadlines.add(() => called.push("second")))
  await after(30)
  assert.deepStrictEqual(called, ["first"])
})

it("when all are cancelled, then the process need not wait, and the next one is called in time", async () => {
  const before = timers()
  const deadlines = new Deadlines(50)
  const cancel = deadlines.add(() => assert.fail("cancelled"))
  assert.strictEqual(timers(), before + 1)
  cancel()
  assert.strictEqual(timers(), before)
  await after(20)
  const begun = performance.now()
  await new Promise<void>((resolve) => void deadlines.add(resolve))
  assert.isAtLeast(performance.now() - begun, 48)
})

it("when a deadline is cancelled, then what its callback refers to is collected without a full collection", () => {
  const deadlines = new Deadlines(60_000)
  const use = (list: Array<number>) => deadlines.add(() => void list.pop())()
  heldAfter(3, use)
  assert.isBelow(heldAfter(3, use), 3)
})
