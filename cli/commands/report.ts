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
import { boundsOf, endsOf, periodFlags, periodLine, selection } from "../period.ts"
import { type PriceList, readPrices } from "../prices.ts"
import { amount, escapeText, Json, note, show, table } from "../terminal.ts"

const missing = { tenant: "-", key: "-", model: "-", user: "(nobody named)", day: "-" } as const

const figures = (
  { cost, errors, requests, tokensCached, tokensIn, tokensOut }: Totals,
  prices: PriceList | undefined
) => ({
  requests,
  tokens_in: tokensIn,
  tokens_cached: tokensCached,
  tokens_out: tokensOut,
  errors,
  ...(prices === undefined ? {} : { cost })
})

const sumOf = ({ others, rows }: Report): Totals => {
  const all: ReadonlyArray<Totals> = others === undefined ? rows : [...rows, others]
  const sum = (of: keyof Totals) => all.reduce((total, row) => total + row[of], 0)
  return {
    requests: sum("requests"),
    tokensIn: sum("tokensIn"),
    tokensCached: sum("tokensCached"),
    tokensOut: sum("tokensOut"),
    errors: sum("errors"),
    cost: sum("cost"),
    unpriced: sum("unpriced")
  }
}

/** What is printed: a report by a column, with or without costs. */
interface Printed extends Report {
  readonly by: ReportColumn
  readonly prices: PriceList | undefined
}

/** One object a row. The rows beyond `--top` are one more, without a name and with `others`, so that the sums stay whole. */
const toJson = ({ by, others, prices, rows }: Printed) => [
  ...rows.map((row) => ({
    [by]: row.name,
    ...(by === "key" ? { name: row.label, tenant: row.tenant } : {}),
    ...figures(row, prices)
  })),
  ...(others === undefined ? [] : [{ [by]: null, others: others.count, ...figures(others, prices) }])
]

type Cells = ReadonlyArray<string | number | null>

/** The rows with their figures; a key has two names more. `ofOthers`: the name of the row beyond `--top`. */
const cellsOf = (
  { by, others, prices, rows }: Printed,
  ofOthers: (count: number) => string
): ReadonlyArray<Cells> => {
  const more = (names: Cells) => (by === "key" ? names : [])
  return [
    ...rows.map((row) => [
      row.name,
      ...more([row.label, row.tenant]),
      ...Object.values(figures(row, prices))
    ]),
    ...(others === undefined
      ? []
      : [[ofOthers(others.count), ...more(["", ""]), ...Object.values(figures(others, prices))]])
  ]
}

const headers = ({ by, prices }: Printed): ReadonlyArray<string> => [
  by,
  ...(by === "key" ? ["name", "tenant"] : []),
  "requests",
  "tokens_in",
  "tokens_cached",
  "tokens_out",
  "errors",
  ...(prices === undefined ? [] : ["cost"])
]

const money = (cost: number): string =>
  cost.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 4 })

const toTable = (printed: Printed): string => {
  const { by, period, prices } = printed
  const names = headers(printed)
  const shown = (cell: string | number | null, column: number): string =>
    typeof cell === "number"
      ? names[column] === "cost"
        ? money(cell)
        : amount(cell)
      : escapeText(cell ?? (column === 0 ? missing[by] : "-"))
  const sum = ["all", ...(by === "key" ? ["", ""] : []), ...Object.values(figures(sumOf(printed), prices))]
  const rows = [...cellsOf(printed, (count) => `${amount(count)} others`), sum]
  const { currency } = prices ?? {}
  return `${table(
    names.map((name) =>
      [name.toUpperCase(), ...(name === "cost" && currency !== undefined ? [currency] : [])].join(" ")
    ),
    rows.map((row) => row.map(shown))
  )}\n\n${periodLine(period)}`
}

/** Each line has the period, so that the files of two months can be put together. */
const toCsv = (printed: Printed): string =>
  csv(
    ["since", "until", ...headers(printed)],
    cellsOf(printed, (count) => `(${count} others)`).map((cells) => [...endsOf(printed.period), ...cells])
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
    ...selection,
    ...periodFlags("the first of the month"),
    price: flags.optional(
      flags.text("price", "path", "A file with prices of a million tokens by model: adds the column COST")
    ),
    top: flags
      .count("top", "Rows to show, those with the most tokens; the rest is one row. 1 to 10000")
      .pipe(Flag.withDefault(1000)),
    csv: flags.toggle("csv", "Print CSV")
  },
  Effect.fnUntraced(function* ({ csv: asCsv, month, price, since, until, ...query }) {
    if (asCsv && (yield* Json)) {
      return yield* new InvalidValue({ field: "csv", expected: "given without --json" })
    }
    const records = yield* Records
    const prices = price === undefined ? undefined : yield* readPrices(price)
    const found = yield* records.report({
      ...query,
      ...(yield* boundsOf({ month, since, until })),
      prices: prices?.prices
    })
    const printed: Printed = { ...found, by: query.by, prices }
    yield* asCsv ? Console.log(toCsv(printed)) : show(toJson(printed), toTable(printed))
    const { unpriced } = sumOf(found)
    if (prices !== undefined && unpriced > 0) {
      yield* note(`${amount(unpriced)} tokens are of models without a price, and not in the cost`)
    }
  })
).pipe(
  described(
    "Show requests, tokens and errors of all tenants, from the ledger; parts of a day, users and statuses from the audit",
    "tollgate report --by model --since 30d",
    ["tollgate report --by user --since 23:00 --until 06:00", "Who worked last night?"],
    "tollgate report --by key --month 2026-11 --price prices.yaml --csv"
  )
)
