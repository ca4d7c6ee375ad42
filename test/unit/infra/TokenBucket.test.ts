import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { makeBuckets, makeFairBuckets, TokenBucket } from "../../../src/infra/TokenBucket.ts"

it("when units are taken at any times, then no more pass than the burst and what the time has brought", () => {
  const step = fc.record({ ms: fc.nat(500), units: fc.integer({ min: 1, max: 8 }) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      let now = 0
      let passed = 0
      const bucket = new TokenBucket({ perSecond: 10, burst: 5 }, () => now)
      for (const { ms, units } of steps) {
        now += ms
        if (bucket.units >= units) {
          bucket.take(units)
          passed += units
        }
        assert.isAtMost(passed, 5 + now / 100 + 1e-6)
        assert.isAtMost(bucket.units, 5)
        assert.isAtLeast(bucket.units, 0)
      }
    })
  )
})

it("when a bucket may be overdrawn, then it is by its bound at most, and the debt is paid first", () => {
  let now = 0
  const bucket = new TokenBucket({ perSecond: 10, burst: 5, overdraftS: 2 }, () => now)
  bucket.take(1000)
  assert.strictEqual(bucket.units, -20)
  assert.strictEqual(bucket.msUntil(1), 2100)
  now = 2000
  assert.isBelow(bucket.units, 1)
  now = 2100
  assert.strictEqual(bucket.units, 1)
})

it("when more names come than have a bucket, then the one used longest ago starts with a full one", () => {
  const bucketOf = makeBuckets({ perSecond: 1, burst: 2 }, 2, () => 0)
  for (const name of ["a", "a", "b"]) bucketOf(name).take()
  assert.strictEqual(bucketOf("a").units, 0)
  bucketOf("c")
  assert.strictEqual(bucketOf("a").units, 0)
  assert.strictEqual(bucketOf("b").units, 2)
})

it("when names of a group take, then each has its own bucket, and all share that of the group", () => {
  const bucketsOf = makeFairBuckets({ perSecond: 1, burst: 2 }, 2, 10, () => 0)
  const unitsOf = (group: string, name: string) => bucketsOf(group, name).map(({ units }) => units)
  for (const name of ["a", "b", "b"]) for (const bucket of bucketsOf("group", name)) bucket.take()
  assert.deepStrictEqual(unitsOf("group", "a"), [1, 1])
  assert.deepStrictEqual(unitsOf("group", "b"), [0, 1])
  assert.deepStrictEqual(unitsOf("group", "c"), [2, 1])
  assert.deepStrictEqual(unitsOf("other", "d"), [2, 4])
})
