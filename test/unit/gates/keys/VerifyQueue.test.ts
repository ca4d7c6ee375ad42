import { assert, it } from "@effect/vitest"
import { type Entry, type Line, VerifyQueue } from "../../../../src/gates/keys/VerifyQueue.ts"

interface Named extends Entry {
  readonly name: string
}

const makeQueue = (perPrefix: number, most: number) => {
  const evicted: Array<string> = []
  const queue = new VerifyQueue<Named>({ perPrefix, most, random: Math.random })
  const entry = (name: string, prefix = "p", turnedAway = false, from = ""): Named => ({
    name,
    prefix,
    turnedAway,
    from
  })
  /** Whether an entry got a place. */
  const enter = (one: Named, line: Line): boolean => {
    const { isIn, replaced } = queue.enter(one, line)
    evicted.push(...replaced.map(({ name }) => name))
    return isIn
  }
  return { evicted, queue, entry, enter }
}

it("when a prefix has too many waiting, then a newcomer takes the place of a random one of them", () => {
  const survivors = new Set<string>()
  for (let round = 0; round < 200; round += 1) {
    const { enter, entry, evicted, queue } = makeQueue(3, 100)
    for (const name of ["a", "b", "c"]) assert.isTrue(enter(entry(name), "suspect"))
    assert.isTrue(enter(entry("other", "q"), "suspect"))
    assert.isTrue(enter(entry("newcomer"), "suspect"))
    assert.strictEqual(evicted.length, 1)
    assert.notInclude(evicted, "other")
    survivors.add(evicted[0] ?? "")
    assert.strictEqual(queue.size, 4)
  }
  assert.deepStrictEqual([...survivors].sort(), ["a", "b", "c"])
})

it("when the queue is full, then a newcomer takes the place of a suspect of any prefix, never of a clean one", () => {
  const { enter, entry, evicted, queue } = makeQueue(2, 3)
  assert.isTrue(enter(entry("clean", "a"), "clean"))
  assert.isTrue(enter(entry("suspect", "b"), "suspect"))
  assert.isTrue(enter(entry("clean too", "c"), "clean"))
  assert.isTrue(enter(entry("newcomer", "d"), "clean"))
  assert.deepStrictEqual(evicted, ["suspect"])
  assert.isFalse(enter(entry("one more", "e"), "clean"), "only clean ones are left")
  assert.strictEqual(queue.size, 3)
})

it("when a secret was turned away before, then it is ahead of those that were not, and keeps its place", () => {
  const { enter, entry, evicted, queue } = makeQueue(3, 100)
  assert.isTrue(enter(entry("guess 1"), "suspect"))
  assert.isTrue(enter(entry("guess 2"), "suspect"))
  assert.isTrue(enter(entry("owner", "p", true), "suspect"))
  for (let n = 3; n < 100; n += 1) assert.isTrue(enter(entry(`guess ${n}`), "suspect"))
  assert.notInclude(evicted, "owner")
  assert.strictEqual(queue.take("suspect")?.name, "owner")
})

it("when all that wait were turned away before, then a newcomer that was not is turned away", () => {
  const { enter, entry, evicted } = makeQueue(1, 100)
  assert.isTrue(enter(entry("owner", "p", true), "suspect"))
  assert.isFalse(enter(entry("guess", "p", false), "suspect"))
  assert.deepStrictEqual(evicted, [])
})

it("when all that wait were turned away before, then a newcomer that was too takes the place of a random one", () => {
  const survivors = new Set<string>()
  for (let round = 0; round < 200; round += 1) {
    const { enter, entry, evicted } = makeQueue(2, 100)
    for (const name of ["a", "b"]) assert.isTrue(enter(entry(name, "p", true), "suspect"))
    assert.isTrue(enter(entry("owner", "p", true), "suspect"), "however often the others were")
    survivors.add(evicted[0] ?? "")
  }
  assert.deepStrictEqual([...survivors].sort(), ["a", "b"])
})

it("when one address floods a prefix, then an entry of another takes a place, keeps it, and is taken next", () => {
  const { enter, entry, evicted, queue } = makeQueue(2, 100)
  enter(entry("in work", "p", true, "flood"), "suspect")
  queue.take("suspect")
  for (let n = 0; n < 20; n += 1) enter(entry(`guess ${n}`, "p", true, "flood"), "suspect")
  assert.isTrue(enter(entry("owner", "p", false, "elsewhere"), "suspect"))
  for (let n = 20; n < 40; n += 1) {
    assert.isFalse(enter(entry(`guess ${n}`, "p", true, "flood"), "suspect"))
  }
  assert.notInclude(evicted, "owner")
  assert.strictEqual(queue.take("suspect")?.name, "owner")
})

it("when one address floods all prefixes, then an entry of another takes a place, keeps it, and is taken next", () => {
  const { enter, entry, evicted, queue } = makeQueue(2, 10)
  for (let n = 0; n < 40; n += 1) enter(entry(`guess ${n}`, `p${n}`, true, "flood"), "suspect")
  queue.take("suspect")
  assert.isTrue(enter(entry("owner", "q", false, "elsewhere"), "suspect"))
  for (let n = 40; n < 80; n += 1) enter(entry(`guess ${n}`, `p${n}`, true, "flood"), "suspect")
  assert.notInclude(evicted, "owner")
  assert.strictEqual(queue.take("suspect")?.name, "owner")
})
