import { assert, describe, it } from "@effect/vitest"
import { AnswerAccount, freeBytes } from "../../../src/backend/AnswerAccount.ts"

const mib = 1024 * 1024
const most = 16 * mib

const makeWorld = (maxBytes = most) => {
  let now = 0
  const [cut, gone]: [Array<string>, Array<string>] = [[], []]
  const account = new AnswerAccount(maxBytes, () => now)
  const open = (key: string, name = key) => {
    const share = account.open(key)
    share.cut = () => void cut.push(name)
    return {
      hold: (bytes: number) => account.hold(share, bytes),
      deliver: (bytes: number) => account.deliver(share, bytes),
      close: () => account.close(share),
      /** bytes that count */
      tryCollect: (bytes: number) => account.tryCollect(share, bytes + freeBytes),
      wait: (bytes: number) => account.wait(share, bytes + freeBytes, () => void gone.push(name))
    }
  }
  return { account, cut, gone, open, pass: (ms: number) => void (now += ms) }
}

describe("answers that wait for their clients", () => {
  const small = () => makeWorld(1000)

  it("when those of a key take more than what is left, then the key has no room until they are read", () => {
    const { account, cut, open } = small()
    const first = open("a")
    first.hold(400)
    assert.isFalse(account.isFull("a"))
    const second = open("a")
    second.hold(101)
    assert.isTrue(account.isFull("a"))
    assert.isFalse(account.isFull("b"))
    first.hold(300)
    second.hold(0)
    assert.isFalse(account.isFull("a"))
    assert.deepStrictEqual([account.bytes, cut], [300, []])
  })

  it("when there is no room for all, then the one that was not read for longest is cut, weighed by its bytes", () => {
    const { account, cut, open, pass } = small()
    open("small and old").hold(10)
    pass(500)
    open("large and old").hold(600)
    pass(100)
    const read = open("large and read")
    read.hold(300)
    pass(100)
    read.hold(300)
    open("new").hold(200)
    assert.deepStrictEqual([cut, account.bytes, account.cuts], [["large and old"], 510, 1])
  })

  it("when one answer is larger than all may be, then it is not cut while it is alone", () => {
    const { account, cut, open, pass } = small()
    const large = open("large")
    large.hold(5000)
    pass(1000)
    large.hold(5000)
    assert.deepStrictEqual([cut, account.bytes], [[], 5000])
    open("small").hold(1)
    pass(1000)
    open("other").hold(1)
    assert.deepStrictEqual([cut, account.bytes], [["large"], 2])
  })

  it("when many answers are held at once, then they never take more than all may", () => {
    const { account, open, pass } = small()
    for (let i = 0; i < 500; i++) {
      open(`k${i % 7}`, String(i)).hold(1 + ((i * 37) % 200))
      pass(i % 3)
      assert.isAtMost(account.bytes, 1000)
    }
  })
})

describe("answers that are collected", () => {
  it("when they are small, then nothing is counted and nobody waits", () => {
    const { account, open } = makeWorld(1)
    for (let i = 0; i < 100; i += 1) assert.isTrue(account.tryCollect(account.open("a"), freeBytes))
    open("b").tryCollect(0)
    assert.strictEqual(account.bytes, 0)
  })

  it("when they take half of all, then the next ones wait; one of them goes on, until it is whole", () => {
    const { account, cut, gone, open } = makeWorld()
    const [a, b, c] = [open("a"), open("b"), open("c")]
    assert.isTrue(a.tryCollect(7 * mib))
    assert.isFalse(b.tryCollect(2 * mib))
    b.wait(2 * mib)
    assert.deepStrictEqual(gone, ["b"], "the first that waits goes beyond the half")
    assert.isFalse(c.tryCollect(mib), "nobody else does")
    c.wait(mib)
    assert.isTrue(b.tryCollect(6 * mib))
    assert.deepStrictEqual([gone, account.waiting], [["b"], 1])
    b.deliver(5 * mib)
    assert.deepStrictEqual([gone, account.waiting, account.bytes], [["b", "c"], 0, 13 * mib])
    assert.deepStrictEqual(cut, [])
  })

  it("when memory is given back, then those who wait have it in their order, and a newcomer comes after them", () => {
    const { gone, open } = makeWorld()
    const [a, first] = [open("a"), open("first")]
    a.tryCollect(8 * mib)
    first.wait(mib)
    for (const name of ["second", "third", "fourth"]) open(name).wait(mib)
    assert.deepStrictEqual(gone, ["first"])
    a.tryCollect(5 * mib)
    assert.deepStrictEqual(gone, ["first", "second", "third"])
    assert.isFalse(open("newcomer").tryCollect(1))
    a.close()
    assert.deepStrictEqual(gone, ["first", "second", "third", "fourth"])
  })

  it("when one leaves that waits, or was first, then the next takes its place", () => {
    const { account, gone, open } = makeWorld()
    open("a").tryCollect(8 * mib)
    const first = open("first")
    first.wait(mib)
    const leave = open("second").wait(mib)
    open("third").wait(mib)
    leave()
    first.close()
    assert.deepStrictEqual([gone, account.waiting], [["first", "third"], 0])
  })

  it("when readers have all the memory, then one that takes nothing for a second is cut", () => {
    const { account, cut, gone, open, pass } = makeWorld()
    const reads = open("reads")
    reads.hold(6 * mib)
    open("does not").hold(6 * mib)
    pass(600)
    open("asks").wait(6 * mib)
    reads.hold(5 * mib)
    account.admitWaiting()
    assert.deepStrictEqual([cut, gone], [[], []])
    pass(400)
    account.admitWaiting()
    assert.deepStrictEqual([cut, gone], [["does not"], ["asks"]])
  })

  it("when all readers read, then they are waited for, but not for more than five seconds", () => {
    const { account, cut, gone, open, pass } = makeWorld()
    const readers = ["small", "large"].map((name, i) => ({ share: open(name), bytes: (i + 5) * mib }))
    for (const { bytes, share } of readers) share.hold(bytes)
    open("waits").wait(6 * mib)
    for (let i = 0; i < 10; i += 1) {
      for (const { bytes, share } of readers) share.hold(bytes)
      assert.deepStrictEqual([cut, gone], [[], []], String(i))
      pass(500)
      account.admitWaiting()
    }
    assert.deepStrictEqual([cut, gone], [["large"], ["waits"]])
  })

  it("when collected answers fill their half, then no reader is cut for it", () => {
    const { account, cut, open } = makeWorld()
    for (const name of ["a", "b"]) open(name).tryCollect(4 * mib)
    for (let i = 0; i < 8; i += 1) open(`reader ${i}`).hold(mib)
    assert.deepStrictEqual([cut, account.bytes], [[], most])
    open("one more").hold(1)
    assert.lengthOf(cut, 1)
  })

  it("when anything happens in any order, then answers never take more than their memory and one answer, and all go on", () => {
    let seed = 7
    const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below
    const { account, gone, open, pass } = makeWorld()
    const largest = 4 * mib
    const shares = Array.from({ length: 40 }, (_, i) => ({ ...open(`k${i % 5}`, String(i)), has: 0 }))
    let waits = 0
    const waiting = new Set<number>()
    for (let turn = 0; turn < 20_000; turn += 1) {
      pass(random(50))
      account.admitWaiting()
      for (const name of gone.splice(0)) waiting.delete(Number(name))
      const i = random(shares.length)
      const share = shares[i]
      if (share === undefined || waiting.has(i)) continue
      if (random(8) === 0) {
        share.close()
        share.has = 0
      } else if (random(4) === 0) {
        share.deliver(share.has)
        share.has = 0
      } else {
        share.has = Math.min(largest, share.has + random(mib))
        if (!share.tryCollect(share.has)) {
          waits += 1
          waiting.add(i)
          share.wait(share.has)
        }
      }
      assert.isAtMost(account.bytes, most + largest)
    }
    assert.isAbove(waits, 100)
    // Whoever does not wait comes to its end.
    for (let turn = 0; turn < 400; turn += 1) {
      pass(250)
      account.admitWaiting()
      for (const name of gone.splice(0)) waiting.delete(Number(name))
      for (const [i, share] of shares.entries()) if (!waiting.has(i)) share.close()
    }
    assert.deepStrictEqual([waiting.size, account.waiting], [0, 0])
  })
})
