import { assert, it } from "@effect/vitest"
import { Unread } from "../../../../src/http/server/UnreadAnswers.ts"

const world = () => {
  let now = 0
  const cut: Array<string> = []
  const unread = new Unread(1000, () => now)
  return {
    unread,
    cut,
    wait: (ms: number) => void (now += ms),
    answer: (key: string, name = key) => unread.answer(key, () => void cut.push(name))
  }
}

it("when the answers of a key take more than what is left, then the key has no room until they are read", () => {
  const { answer, cut, unread } = world()
  const first = answer("a")
  first.hold(400)
  assert.isFalse(unread.isFull("a"))
  const second = answer("a")
  second.hold(101)
  assert.isTrue(unread.isFull("a"))
  assert.isFalse(unread.isFull("b"))
  first.hold(300)
  second.hold(0)
  assert.isFalse(unread.isFull("a"))
  assert.deepStrictEqual([unread.bytes, cut], [300, []])
})

it("when there is no room for all, then the one that was not read for longest is cut, weighed by its bytes", () => {
  const { answer, cut, unread, wait } = world()
  answer("small and old").hold(10)
  wait(500)
  answer("large and old").hold(600)
  wait(100)
  const read = answer("large and read")
  read.hold(300)
  wait(100)
  read.hold(300)
  answer("new").hold(200)
  assert.deepStrictEqual([cut, unread.bytes, unread.cuts], [["large and old"], 510, 1])
})

it("when one answer is larger than all may be, then it is not cut while it is alone", () => {
  const { answer, cut, unread, wait } = world()
  const large = answer("large")
  large.hold(5000)
  wait(1000)
  large.hold(5000)
  assert.deepStrictEqual([cut, unread.bytes], [[], 5000])
  answer("small").hold(1)
  wait(1000)
  answer("other").hold(1)
  assert.deepStrictEqual([cut, unread.bytes], [["large"], 2])
})

it("when many answers are held at once, then they never take more than all may", () => {
  const { answer, unread, wait } = world()
  for (let i = 0; i < 500; i++) {
    answer(`k${i % 7}`, String(i)).hold(1 + ((i * 37) % 200))
    wait(i % 3)
    assert.isAtMost(unread.bytes, 1000)
  }
})
