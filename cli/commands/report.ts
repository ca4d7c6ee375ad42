import { Console, Effect, Option } from "effect"
import { Command, Flag } from "effect/cli"
import { InvalidValue } from "../../src/admin/Errors.ts"
import {
  type Report,
  type ReportColumn,
  reportColumns,
  Records,
  type Totals
} from "../../src/admin/records/Records.ts"
import { csv } from "../csv.ts"
import * as flags from "../flags.ts"
import { readDay } from "../reportDays.ts"
import { amount, Json, escapeText, show, table } from "../terminal.ts"

const missing = { tenant: "-", key: "-", model: "-", user: "(nobody named)", day: "-" } as const

const figures = (totals: Totals) => ({
  requests: totals.requests,
  tokens_in: totals.tokensIn,
  tokens_out: totals.tokensOut,
  errors: totals.errors
})

const sumOf = (report: Report): Totals => {
  const all: ReadonlyArray<Totals> =
    report.others === undefined ? report.rows : [...report.rows, report.others]
  const sum = (of: (row: Totals) => number) => all.reduce((total, row) => total + of(row), 0)
  return {
    requests: sum((row) => row.requests),
    tokensIn: sum((row) => row.tokensIn),
    tokensOut: sum((row) => row.tokensOut),
    errors: sum((row) => row.errors)
  }
}

/** One object a row. The rows beyond `--top` are one more, without a name and with `others`, so that the sums stay whole. */
const toJson = (by: ReportColumn, { others, rows }: Report) => [
  ...rows.map((row) => ({
    [by]: row.name,
    ...(by === "key" ? { name: row.label, tenant: row.tenant } : {}),
    ...figures(row)
  })),
  ...(others === undefined ? [] : [{ [by]: null, others: others.count, ...figures(others) }])
]

const toTable = (by: ReportColumn, report: Report): string => {
  const cells = (totals: Totals) => Object.values(figures(totals)).map(amount)
  const more = (texts: ReadonlyArray<string>) => (by === "key" ? texts : [])
  const names = [by.toUpperCase(), ...more(["NAME", "TENANT"])]
  const rows = report.rows.map((row) => [
    escapeText(row.name ?? missing[by]),
    ...more([row.label ?? "-", row.tenant ?? "-"]),
    ...cells(row)
  ])
  if (report.others !== undefined)
    rows.push([`${amount(report.others.count)} others`, ...more(["", ""]), ...cells(report.others)])
  rows.push(["all", ...more(["", ""]), ...cells(sumOf(report))])
  return `${table([...names, "REQUESTS", "TOKENS_IN", "TOKENS_OUT", "ERRORS"], rows)}\n\n${report.since} to ${report.until}, UTC days`
}

const toCsv = (by: ReportColumn, { others, rows }: Report): string => {
  const more = (texts: ReadonlyArray<string | null>) => (by === "key" ? texts : [])
  return csv(
    [by, ...more(["name", "tenant"]).map(String), "requests", "tokens_in", "tokens_out", "errors"],
    [
      ...rows.map((row) => [row.name, ...more([row.label, row.tenant]), ...Object.values(figures(row))]),
      ...(others === undefined
        ? []
        : [[`(${others.count} others)`, ...more(["", ""]), ...Object.values(figures(others))]])
    ]
  )
}

const day = (flag: string, description: string) =>
  Flag.String(flag).pipe(Flag.withDescription(description), Flag.withMetavar("day"), Flag.optional)

export const report = Command.make(
  "report",
  {
    by: Flag.Literals("by", reportColumns).pipe(
      Flag.withDescription(
        "What a row stands for; users are the end users that clients named, read from the audit"
      ),
      Flag.withDefault("tenant")
    ),
    tenant: Flag.optional(flags.tenant),
    since: day("since", "First day: 2027-01-31, or 30d for 30 days ago; default: the first of the month"),
    until: day("until", "Last day; default: today (UTC)"),
    top: Flag.Int("top").pipe(
      Flag.withDescription("Rows to show, those with the most tokens; the rest is one row. 1 to 10000"),
      Flag.withMetavar("n"),
      Flag.withDefault(1000)
    ),
    csv: Flag.Boolean("csv").pipe(Flag.withDefault(false), Flag.withDescription("Print CSV"))
  },
  Effect.fnUntraced(function* (given) {
    if (given.csv && (yield* Json)) {
      return yield* new InvalidValue({ field: "csv", expected: "given without --json" })
    }
    const records = yield* Records
    const since = Option.isSome(given.since) ? yield* readDay("since", given.since.value) : undefined
    const until = Option.isSome(given.until) ? yield* readDay("until", given.until.value) : undefined
    const found = yield* records.report({
      by: given.by,
      top: given.top,
      ...(Option.isSome(given.tenant) ? { tenant: given.tenant.value } : {}),
      ...(since === undefined ? {} : { since }),
      ...(until === undefined ? {} : { until })
    })
    return yield* given.csv
      ? Console.log(toCsv(given.by, found))
      : show(toJson(given.by, found), toTable(given.by, found))
  })
).pipe(
  Command.withDescription("Show requests, tokens and errors of all tenants, from the ledger"),
  Command.withExamples([
    { command: "tollgate report --by model --since 30d" },
    { command: "tollgate report --by key --since 2026-11-01 --until 2026-11-30 --csv" }
  ])
)
