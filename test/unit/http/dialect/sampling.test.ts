/** A new sampling option needs one more decision than its row in `sampling.ts`. */
import { assert, it } from "@effect/vitest"
import { collectingOptions, streamingOptions } from "../../../../src/domain/outputPlan.ts"
import { nativeOptions, openaiOptions } from "../../../../src/http/dialect/sampling.ts"

it("when there is a sampling option, then outputPlan.ts says whether it makes a backend collect its output", () => {
  const undecided = Object.keys({ ...nativeOptions, ...openaiOptions }).filter(
    (name) => !streamingOptions.has(name) && !collectingOptions.has(name)
  )
  assert.deepStrictEqual(
    undecided,
    [],
    "put the option into streamingOptions or collectingOptions of src/domain/outputPlan.ts"
  )
})
