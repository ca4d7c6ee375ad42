/** What a body can become in memory, beside what V8 takes for it, from its bytes to the text of its call. */
import { guards } from "../../../../src/backend/ollama/guards/guards.ts"
import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { Result } from "effect"
import { bytesOf as textBytesOf, prepare } from "../../../../src/domain/prepare.ts"
import { withPromptSize } from "../../../../src/http/dialect/promptEstimate.ts"
import { parseBody } from "../../../../src/http/dialect/strictJson.ts"
import { bytesOf } from "../../../support/heap.ts"
import { anyUnit, heavyBody, places, units } from "../../../support/heavyBodies.ts"
import { modelNamed } from "../../../support/permits.ts"

const bounds = { numPredictCap: 65_536, lowersOutput: false, numCtxCap: undefined, toolsMax: 128 }
const utf8 = new TextDecoder()

interface Figures {
  readonly bytes: number
  readonly weight: number
  /** everything that a body becomes, alive at the same time */
  readonly peak: number
  /** what is kept of it, and what the ledger counts for that; undefined when it is refused */
  readonly kept: readonly [bytes: number, counted: number] | undefined
}

/** Buffers and lists have room to spare, and the heap is not exact. */
const inexact = 65_536

const figuresOf = (place: (typeof places)[string], text: string): Figures | undefined => {
  const bytes = Buffer.from(text)
  let weight = 0
  const parsed = () =>
    parseBody(bytes, (claimed) => {
      weight = claimed
      return undefined
    })
  const becomes = () => {
    const body = parsed()
    if (Result.isFailure(body)) return [body]
    const decoded = place.decoder.decode(body.success, bounds, guards)
    if (Result.isFailure(decoded)) return [utf8.decode(bytes), body, decoded]
    const request = withPromptSize(decoded.success)
    // The text of the call is written as a string before it is bytes.
    return [
      utf8.decode(bytes),
      body,
      request,
      prepare(request, modelNamed("m")),
      JSON.stringify(request.body)
    ]
  }
  const keeps = () =>
    Result.map(
      Result.flatMap(parsed(), (body) => place.decoder.decode(body, bounds, guards)),
      (decoded) => prepare(withPromptSize(decoded), modelNamed("m"))
    )
  if (Result.isFailure(parsed())) return undefined
  const peak = bytesOf(becomes, () => weight + inexact)
  const kept = bytesOf(keeps, (made) =>
    Result.isSuccess(made) ? textBytesOf(made.success) + inexact : Infinity
  )
  return {
    bytes: bytes.length,
    weight,
    peak: peak.bytes,
    kept: Result.isSuccess(kept.made) ? [kept.bytes, textBytesOf(kept.made.success)] : undefined
  }
}

const assertWeighed = (name: string, figures: Figures | undefined): void => {
  if (figures === undefined) return
  const { bytes, kept, peak, weight } = figures
  assert.isAtMost(peak, weight + inexact, `${name}: becomes more than its weight`)
  // Otherwise a body that the memory has room for would be refused.
  assert.isAtMost(weight, 10 * Math.max(peak, 2 * bytes), `${name}: its weight is too high`)
  if (kept === undefined) return
  assert.isAtMost(kept[0], kept[1] + inexact, `${name}: keeps more than is counted`)
}

it("when a body is full of anything, then it takes at most its weight, and what is kept is counted", () => {
  const [all, everywhere] = [Object.entries(units), Object.entries(places)]
  for (const [i, [what, unit]] of all.entries())
    for (const [j, [where, place]] of everywhere.entries())
      // Each kind in one place, and each place with several kinds; `WEIGHTS=300` measures all of them, and so many mixtures.
      if (i % everywhere.length === j || process.env["WEIGHTS"] !== undefined)
        assertWeighed(`${what} in ${where}`, figuresOf(place, heavyBody(place, unit, 60_000)))
})

it("when a body is full of any mixture, then the same holds", () => {
  const property = fc.property(anyUnit, fc.constantFrom(...Object.values(places)), (unit, place) =>
    assertWeighed("a mixture", figuresOf(place, heavyBody(place, unit, 60_000)))
  )
  fc.assert(property, { numRuns: Number(process.env["WEIGHTS"] ?? 4) })
})
