import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { FairShare } from "../../../src/memory/FairShare.ts"

const capacity = 1200

it("when owners take what they may, in any order, then a new tenant always has room", () => {
  const step = fc.record({ tenant: fc.nat(3), key: fc.nat(2), bytes: fc.integer({ min: 1, max: capacity }) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const shares = new FairShare(capacity)
      const tenants = new Map<string, number>()
      for (const { bytes, key, tenant } of steps) {
        const owner = { tenantId: `t${tenant}`, keyId: `t${tenant}k${key}` }
        if (!shares.fits(owner, bytes)) continue
        assert.isTrue(shares.tenantFits(owner, bytes))
        shares.take(owner, bytes)
        tenants.set(owner.tenantId, (tenants.get(owner.tenantId) ?? 0) + bytes)
      }
      const left = capacity - shares.total
      // One tenant leaves half, two a third, and so on.
      assert.isAtLeast(left, capacity / (tenants.size + 1))
      for (const held of tenants.values()) assert.isAtMost(held, capacity / 2)
    })
  )
})
