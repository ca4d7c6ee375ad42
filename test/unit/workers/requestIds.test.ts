/** The mark of a worker in its request ids. */
import { assert, it } from "@effect/vitest"
import { randomUUIDv7 } from "node:crypto"
import { hasMark, makeMark, makeRequestIds } from "../../../src/workers/requestIds.ts"

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

it("when a worker makes ids, then they are UUIDs of version 7, all different, and have its mark alone", () => {
  const [own, other] = [makeMark(), makeMark()]
  const newId = makeRequestIds(own)
  const ids = Array.from({ length: 20_000 }, () => newId())
  assert.strictEqual(new Set(ids).size, ids.length)
  for (const id of ids) assert.match(id, uuid)
  assert.isTrue(ids.every((id) => hasMark(own, id)))
  assert.isFalse(ids.some((id) => hasMark(other, id)))
  assert.isFalse(Array.from({ length: 20_000 }, () => randomUUIDv7()).some((id) => hasMark(own, id)))
})

it("when ids of one worker are compared, then their marks are spread as chance would spread them", () => {
  const newId = makeRequestIds(makeMark())
  const marks = Array.from({ length: 4096 }, () => Number.parseInt(newId().slice(-7), 16))
  assert.isAbove(new Set(marks).size, 4090)
  for (let bit = 0; bit < 28; bit += 1) {
    const ones = marks.filter((mark) => (mark >>> bit) % 2 === 1).length
    assert.closeTo(ones, 2048, 300, `bit ${bit}`)
  }
})

it("when a text is no id, then it has no mark", () => {
  assert.isFalse(hasMark(1, ""))
  assert.isFalse(hasMark(1, "01a1fe92-0000-7000-8000-00000000000a-and-more"))
})
