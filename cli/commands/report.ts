import { Console, Effect } from "effect"
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
import { described } from "../described.ts"
import * as flags from "../flags.ts"
import { amount, Json, escapeText, show, table } from "../terminal.ts"
import { aDay, readDay } from "../times.ts"

const missing = { tenant: "-", key: "-", model: "-", user: "(nobody named)", day: "-" } as const

const figures = ({ errors, requests, tokensCached, tokensIn, tokensOut }: Totals) => ({
  requests,
  tokens_in: tokensIn,
  tokens_cached: tokensCached,
  tokens_out: tokensOut,
  errors
})

const sumOf = ({ others, rows }: Report): Totals => {
  const all: ReadonlyArray<Totals> = others === undefined ? rows : [...rows, others]
  const sum = (of: keyof Totals) => all.reduce((total, row) => total + row[of], 0)
  return {
    requests: sum("requests"),
    tokensIn: sum("tokensIn"),
    tokensCached: sum("tokensCached"),
    tokensOut: sum("tokensOut"),
    errors: sum("errors")
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

type Cells = ReadonlyArray<string | number | null>

/** The rows with their figures; a key has two names more. `ofOthers`: the name of the row beyond `--top`. */
const cellsOf = (
  by: ReportColumn,
  { others, rows }: Report,
  ofOthers: (count: number) => string
): ReadonlyArray<Cells> => {
  const more = (names: Cells) => (by === "key" ? names : [])
  return [
    ...rows.map((row) => [row.name, ...more([row.label, row.tenant]), ...Object.values(figures(row))]),
    ...(others === undefined
      ? []
      : [[ofOthers(others.count), ...more(["", ""]), ...Object.values(figures(others))]])
  ]
}

const headers = (by: ReportColumn): ReadonlyArray<string> => [
  by,
  ...(by === "key" ? ["name", "tenant"] : []),
  "requests",
  "tokens_in",
  "tokens_cached",
  "tokens_out",
  "errors"
]

const toTable = (by: ReportColumn, report: Report): string => {
  const shown = (cell: string | number | null, column: number): string =>
    typeof cell === "number" ? amount(cell) : escapeText(cell ?? (column === 0 ? missing[by] : "-"))
  const sum = ["all", ...(by === "key" ? ["", ""] : []), ...Object.values(figures(sumOf(report)))]
  const rows = [...cellsOf(by, report, (count) => `${amount(count)} others`), sum]
  return `${table(
    headers(by).map((header) => header.toUpperCase()),
    rows.map((row) => row.map(shown))
  )}\n\n${report.since} to ${report.until}, UTC days`
}

const day = (name: string, description: string) =>
  flags.text(name, "day", description).pipe(
    Flag.filterMap(readDay, () => aDay),
    flags.optional
  )

export const report = Command.make(
  "report",
  {
    by: Flag.Literals("by", reportColumns).pipe(
      Flag.withDescription(
        "What a row stands for; users are the end users that clients named, read from the audit"
      ),
      Flag.withDefault("tenant")
    ),
    tenant: flags.owner.tenant,
    since: day("since", "First day: 2027-01-31, or 30d for 30 days ago; default: the first of the month"),
    until: day("until", "Last day; default: today (UTC)"),
    top: flags
      .count("top", "Rows to show, those with the most tokens; the rest is one row. 1 to 10000")
      .pipe(Flag.withDefault(1000)),
    csv: flags.toggle("csv", "Print CSV")
  },
  Effect.fnUntraced(function* ({ csv: asCsv, ...query }) {
    if (asCsv && (yield* Json)) {
      return yield* new InvalidValue({ field: "csv", expected: "given without --json" })
    }
    const records = yield* Records
    const [by, found] = [query.by, yield* records.report(query)]
    return yield* asCsv
      ? Console.log(
          csv(
            headers(by),
            cellsOf(by, found, (count) => `(${count} others)`)
          )
        )
      : show(toJson(by, found), toTable(by, found))
  })
).pipe(
  described(
    "Show requests, tokens and errors of all tenants, from the ledger",
    "tollgate report --by model --since 30d",
    "tollgate report --by key --since 2026-11-01 --until 2026-11-30 --csv"
  )
)
