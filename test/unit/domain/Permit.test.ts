import { assert, it } from "@effect/vitest"
import { permitFor } from "../../support/permits.ts"

it("when a permit is used a second time, then it is a defect", () => {
  const permit = permitFor("m")
  assert.isFalse(permit.used)
  permit.spend()
  assert.isTrue(permit.used)
  assert.throws(() => permit.spend(), "one call")
})
