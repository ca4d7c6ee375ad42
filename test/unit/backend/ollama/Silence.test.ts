/** A model server that hangs: requests that come later do not wait as long again. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import { Silence } from "../../../../src/backend/ollama/Silence.ts"
import { testWith } from "../../../support/testWith.ts"

const second = 1000
const world = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  const silence = new Silence({
    nowMs: () => clock.currentTimeMillisUnsafe(),
    timeoutMs: 300 * second
  })
  /** A request, and whether it has waited too long. */
  const begin = (name: string, collects = false) =>
    Effect.sync(() => {
      const heard = silence.begin(name, collects)
      return { ...heard, isOver: () => heard.leftMs() <= 0, end: Effect.sync(heard.end) }
    })
  const after = (seconds: number) => TestClock.adjust(seconds * second)
  return { after, begin, silence }
})

const test = testWith(it.effect)

test("when a model has sent nothing since the first request, then the later ones end with the first", function* () {
  const { after, begin, silence } = yield* world
  const first = yield* begin("m")
  yield* after(200)
  const [later, other] = [yield* begin("m"), yield* begin("other")]
  yield* after(99)
  const last = yield* begin("m")
  assert.deepStrictEqual([first.isOver(), later.isOver()], [false, false])
  yield* after(1)
  assert.deepStrictEqual(
    [first.isOver(), later.isOver(), last.isOver(), other.isOver()],
    [true, true, false, false]
  )
  // The last one has sixty seconds of its own.
  yield* after(59)
  assert.isTrue(last.isOver())
  yield* Effect.forEach([first, later, last, other], ({ end }) => end)
  assert.strictEqual(silence.size, 0)
  const fresh = yield* begin("m")
  yield* after(299)
  assert.isFalse(fresh.isOver())
  yield* fresh.end
})

test("when any request of the model gets a frame, then the others may wait from then on", function* () {
  const { after, begin } = yield* world
  const [one, two] = [yield* begin("m"), yield* begin("m")]
  yield* after(290)
  one.frame()
  yield* after(290)
  assert.isFalse(two.isOver())
  yield* after(10)
  assert.isTrue(two.isOver())
  yield* Effect.forEach([one, two], ({ end }) => end)
})

test("when a request whose output is collected runs, then silence says nothing", function* () {
  const { after, begin } = yield* world
  const [collecting, other] = [yield* begin("m", true), yield* begin("m")]
  yield* after(900)
  assert.deepStrictEqual([collecting.isOver(), other.isOver()], [false, false])
  yield* collecting.end
  yield* after(599)
  assert.isTrue(other.isOver())
  yield* other.end
})
