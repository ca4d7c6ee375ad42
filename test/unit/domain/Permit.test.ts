import { assert, it } from "@effect/vitest"
import { permitFor } from "../../support/permits.ts"

it("a permit is good for one call: a second use is a defect", () => {
  const permit = permitFor("m")
  assert.isFalse(permit.used)
  permit.spend()
  assert.isTrue(permit.used)
  assert.throws(() => permit.spend(), "one call")
})
