import { assert, it } from "@effect/vitest"
import { Option } from "effect"
import fc from "fast-check"
import { periodOf } from "../../src/admin/records/period.ts"
import { readInstant, readLifetime, readMoment, readMonth } from "../../cli/times.ts"
import { minute, render } from "../../cli/terminal.ts"

it("when a table is printed, then it fits its terminal down to a readable minimum, whatever is in it", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string({ maxLength: 200 }), fc.string({ maxLength: 200 })), { maxLength: 5 }),
      fc.integer({ min: 20, max: 200 }),
      (rows, width) => {
        const clean = rows.map((row) => row.map((cell) => cell.replaceAll(/[\p{C}\p{Z}]/gu, "x")))
        for (const line of render({ headers: ["FIRST", "SECOND"], rows: clean }, width).split("\n")) {
          assert.isAtMost([...line].length, width)
        }
      }
    )
  )
})

it("when there are too many columns for a terminal, then each row is a block, and nothing is lost", () => {
  const headers = ["PREFIX", "STATUS", "LIMITS", "EXPIRES"]
  const rows = [["tg_4fJ2kQ9sX", "active now", "60 / 100,000 / 4", "2026-12-24 23:59"]]
  assert.strictEqual(
    render({ headers, rows }, 48),
    [
      "PREFIX        STATUS      LIMITS      EXPIRES",
      "tg_4fJ2kQ9sX  active now  60 /        2026-12-24",
      "                          100,000 /   23:59",
      "                          4"
    ].join("\n")
  )
  assert.strictEqual(
    render({ headers, rows }, 30),
    [
      "PREFIX   tg_4fJ2kQ9sX",
      "STATUS   active now",
      "LIMITS   60 / 100,000 / 4",
      "EXPIRES  2026-12-24 23:59"
    ].join("\n")
  )
})

it("when the output is not a terminal, then nothing is cut", () => {
  const long = "m".repeat(500)
  assert.include(render({ headers: ["MODEL"], rows: [[long]] }, Number.POSITIVE_INFINITY), long)
})

it("when a time is printed, then it is to the minute in UTC", () => {
  assert.strictEqual(minute(new Date("2026-11-21T05:10:54Z")), "2026-11-21 05:10")
  assert.strictEqual(minute(null), "-")
})

it("when a lifetime is read, then it is in minutes, hours, days or weeks, and nothing else", () => {
  for (const [text, ms] of [
    ["45m", 2_700_000],
    ["12h", 43_200_000],
    ["30d", 2_592_000_000],
    ["2w", 1_209_600_000]
  ] as const)
    assert.deepStrictEqual(readLifetime(text), Option.some(ms))
  for (const text of ["", "30", "d", "-1d", "1.5d", "30 d", "30D", "30d\n", "1y", "9999999d"])
    assert.isTrue(Option.isNone(readLifetime(text)), JSON.stringify(text))
})

it("when a time is read, then it is a date or a time with its zone, and days that do not exist are refused", () => {
  for (const [text, iso] of [
    ["2027-01-31", "2027-01-31T00:00:00.000Z"],
    ["2027-01-31T12:00:00+02:00", "2027-01-31T10:00:00.000Z"]
  ] as const)
    assert.deepStrictEqual(readInstant(text), Option.some(new Date(iso)))
  for (const text of ["", "tomorrow", "2027-02-30", "2027-13-01", "2027-01-31T12:00", "31.1.2027", "2027"])
    assert.isTrue(Option.isNone(readInstant(text)), JSON.stringify(text))
})

it("when a period is given, then days are whole UTC days, and a time of the clock is the latest one", () => {
  const morning = new Date("2026-11-22T09:30:00Z")
  const period = (since: string, until?: string, now = morning) => {
    const read = (text: string) => Option.getOrThrow(readMoment(text))
    const found = periodOf(now, { since: read(since), until: until === undefined ? undefined : read(until) })
    return found === undefined
      ? "none"
      : [found.from, found.to].map((at) => at.toISOString().slice(0, 16)).join(" ") +
          (found.days === undefined ? "" : " days")
  }
  for (const [since, until, expected] of [
    ["23:00", "06:00", "2026-11-21T23:00 2026-11-22T06:00"],
    ["23:00+01:00", "07:00+01:00", "2026-11-21T22:00 2026-11-22T06:00"],
    ["00:30+01:00", "now", "2026-11-21T23:30 2026-11-22T09:30"],
    ["9:30", undefined, undefined],
    ["yesterday", "yesterday", "2026-11-21T00:00 2026-11-22T00:00 days"],
    ["yesterday", undefined, "2026-11-21T00:00 2026-11-23T00:00 days"],
    ["2w", "today", "2026-11-08T00:00 2026-11-23T00:00 days"],
    ["90m", "now", "2026-11-22T08:00 2026-11-22T09:30"],
    ["2026-11-20", "2026-11-21T12:00", "2026-11-20T00:00 2026-11-21T12:00"],
    ["2026-11-21T22:00+01:00", "now", "2026-11-21T21:00 2026-11-22T09:30"],
    ["now", "yesterday", "none"]
  ] as const)
    if (expected === undefined) assert.isTrue(Option.isNone(readMoment(since)), since)
    else assert.strictEqual(period(since, until), expected, `${since} ${until}`)
  const night = new Date("2026-11-22T23:10:00Z")
  assert.strictEqual(period("23:00", "06:00", night), "2026-11-21T23:00 2026-11-22T06:00")
  assert.strictEqual(period("23:00", "now", night), "2026-11-22T23:00 2026-11-22T23:10")
  for (const text of [
    "",
    "soon",
    "24:00",
    "23:60",
    "2027-02-30",
    "2027-01-31T25:00",
    "31.1.2027",
    "23:00+1",
    "1y"
  ])
    assert.isTrue(Option.isNone(readMoment(text)), JSON.stringify(text))
  assert.deepStrictEqual(periodOf(morning, Option.getOrThrow(readMonth("2028-02")))?.days, {
    since: "2028-02-01",
    until: "2028-02-29"
  })
  for (const text of ["2026-13", "2026-00", "2026", "11-2026"])
    assert.isTrue(Option.isNone(readMonth(text)), text)
  assert.deepStrictEqual(periodOf(morning, {})?.days, { since: "2026-11-01", until: "2026-11-22" })
})
