import { assert, describe, it } from "@effect/vitest"
import { dayOf, endOf, monthOf, secondsToEndOf } from "../../../src/domain/Calendar.ts"

const at = (text: string) => Date.parse(text)

describe("Calendar", () => {
  it("when the host is in any time zone, then day and month are those of UTC", () => {
    assert.strictEqual(dayOf(at("2026-11-21T23:59:59.999Z")), "2026-11-21")
    assert.strictEqual(dayOf(at("2026-11-22T00:30:00+02:00")), "2026-11-21")
    assert.strictEqual(monthOf(at("2028-02-29T12:00:00Z")), "2028-02")
  })

  it("when a day or month ends, then it is at the end of the calendar's, leap day and year end included", () => {
    assert.strictEqual(endOf("day", at("2026-12-31T10:00:00Z")), at("2027-01-01T00:00:00Z"))
    assert.strictEqual(endOf("month", at("2026-12-31T23:59:59Z")), at("2027-01-01T00:00:00Z"))
    assert.strictEqual(endOf("month", at("2028-02-29T00:00:00Z")), at("2028-03-01T00:00:00Z"))
    assert.strictEqual(endOf("total", 0), undefined)
  })

  it("when the seconds to the end are counted, then they are whole and at least one", () => {
    assert.strictEqual(secondsToEndOf("day", at("2026-11-21T23:59:59.999Z")), 1)
    assert.strictEqual(secondsToEndOf("day", at("2026-11-21T00:00:00Z")), 86_400)
    assert.strictEqual(secondsToEndOf("total", 0), 86_400)
  })
})
