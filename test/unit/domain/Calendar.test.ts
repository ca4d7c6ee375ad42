/** Days, weeks and months of time zones: half-open intervals that follow each other, whatever the clocks do. */
import { assert, it } from "@effect/vitest"
import fc from "fast-check"
import {
  type Day,
  makeCalendar,
  numberOf,
  secondsToEndOf,
  utc,
  weekdayOf
} from "../../../src/domain/Calendar.ts"

const at = (text: string) => Date.parse(text)
const hour = 3_600_000

it("when an instant is in a period of UTC, then its counters and ends are those of the date", () => {
  const day = utc.dayAt(at("2026-11-21T23:59:59.999Z"))
  assert.deepStrictEqual(day.counters, {
    day: "2026-11-21",
    week: "w2026-11-16",
    month: "2026-11",
    total: "total"
  })
  assert.strictEqual(utc.dayAt(at("2026-11-22T00:30:00+02:00")).date, "2026-11-21")
  const last = utc.dayAt(at("2026-12-31T10:00:00Z"))
  assert.deepStrictEqual(last.ends, {
    day: at("2027-01-01T00:00:00Z"),
    week: at("2027-01-04T00:00:00Z"),
    month: at("2027-01-01T00:00:00Z")
  })
  assert.strictEqual(utc.dayAt(at("2028-02-29T00:00:00Z")).ends.month, at("2028-03-01T00:00:00Z"))
})

it("when seconds to the end are told, then they are whole, and 0 when it is over", () => {
  const day = utc.dayAt(at("2026-11-21T00:00:00Z"))
  for (const [now, seconds] of [
    ["2026-11-21T23:59:59.999Z", 1],
    ["2026-11-21T00:00:00Z", 86_400],
    ["2026-11-22T00:00:01Z", 0]
  ] as const)
    assert.strictEqual(secondsToEndOf("day", day, at(now)), seconds)
  assert.strictEqual(secondsToEndOf("total", day, day.start), 86_400)
})

it("when clocks are changed, then the day has the hours that it has, and begins when its date does", () => {
  for (const [zone, date, start, hours] of [
    ["Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", 23],
    ["Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", 25],
    ["Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00:00Z", 24.5],
    ["Australia/Lord_Howe", "2026-10-04", "2026-10-03T13:30:00Z", 23.5],
    ["Asia/Kathmandu", "2026-11-27", "2026-11-26T18:15:00Z", 24],
    // Midnight itself is left out.
    ["America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z", 23],
    // Midnight comes twice, an hour apart: the day begins with the first.
    ["America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", 25],
    // Clocks go back from midnight to 23:00: that hour is of the day before.
    ["America/Sao_Paulo", "2019-02-16", "2019-02-16T02:00:00Z", 25],
    // The day that Samoa left out.
    ["Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z", 0],
    ["Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", 24]
  ] as const) {
    const day = makeCalendar(zone).dayNumbered(numberOf(date))
    const told = `${zone} ${date}`
    assert.strictEqual(new Date(day.start).toISOString(), new Date(start).toISOString(), told)
    assert.strictEqual((day.ends.day - day.start) / hour, hours, told)
  }
})

/** `false`: clocks went back over midnight once, so an hour of the evening before is of the day that had begun. */
const zones = [
  ["UTC", true],
  ["Europe/Berlin", true],
  ["America/Sao_Paulo", true],
  ["America/Havana", true],
  ["America/New_York", true],
  ["Atlantic/Azores", true],
  ["Australia/Lord_Howe", true],
  ["Asia/Kathmandu", true],
  ["Pacific/Apia", true],
  ["Pacific/Kiritimati", true],
  ["America/St_Johns", false]
] as const

it("when days, weeks and months of any zone follow each other, then each instant is in one of each, by its local date", () => {
  for (const [zone, isLocal] of zones) {
    const calendar = makeCalendar(zone)
    const local = new Intl.DateTimeFormat("sv-SE", { timeZone: zone })
    const check = (instant: number) => {
      const told = `${zone} ${new Date(instant).toISOString()}`
      const day = calendar.dayAt(instant)
      assert.isTrue(day.start <= instant && instant < day.ends.day, told)
      if (isLocal) assert.strictEqual(day.date, local.format(instant), told)
      assert.strictEqual(calendar.dayAt(day.ends.day).start, day.ends.day, told)
      assert.strictEqual(calendar.dayAt(day.start - 1).ends.day, day.start, told)
      for (const span of ["week", "month"] as const) {
        const { from, to } = day.dates[span]
        assert.isTrue(from <= day.date && day.date < to, told)
        const [first, next] = [from, to].map((date) => calendar.dayNumbered(numberOf(date)))
        assert.strictEqual(next?.start, day.ends[span], told)
        assert.isTrue((first?.start ?? Number.NaN) <= instant && instant < day.ends[span], told)
        assert.strictEqual(first?.counters[span], day.counters[span], told)
        assert.notStrictEqual(next?.counters[span], day.counters[span], told)
      }
      assert.strictEqual(weekdayOf(numberOf(day.dates.week.from)), 1, told)
      assert.isTrue(day.dates.month.from.endsWith("-01"), told)
      return day
    }
    fc.assert(
      fc.property(
        fc.integer({ min: at("2009-01-01T00:00:00Z"), max: at("2031-01-01T00:00:00Z") }),
        // On the edge, and around it.
        fc.constantFrom(0, -1, 1, -hour, hour, -1_800_000),
        (instant, off) => {
          const { ends }: Day = check(instant)
          for (const end of Object.values(ends)) check(end + off)
        }
      ),
      { numRuns: 150 }
    )
  }
})

it("when an instant is printed, then it has its offset, and a midnight that ends something is 24:00", () => {
  const berlin = makeCalendar("Europe/Berlin")
  const christmas = berlin.instantOf("2026-12-25")
  assert.deepStrictEqual(
    [berlin.textOf(christmas), berlin.textOf(christmas, "end"), berlin.textOf(christmas + 7000, "second")],
    ["2026-12-25 00:00 +01:00", "2026-12-24 24:00 +01:00", "2026-12-25 00:00:07 +01:00"]
  )
  assert.strictEqual(berlin.textOf(at("2026-07-01T10:00:00Z")), "2026-07-01 12:00 +02:00")
  assert.strictEqual(utc.textOf(at("2026-07-01T10:00:00Z"), "end"), "2026-07-01 10:00 UTC")
  assert.strictEqual(makeCalendar("Asia/Kathmandu").textOf(0), "1970-01-01 05:30 +05:30")
})
