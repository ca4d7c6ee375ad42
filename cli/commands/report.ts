import { Console, Effect, Record, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import {
  type Price,
  type Report,
  type ReportColumn,
  reportColumns,
  Totals
} from "../../src/admin/records/report.ts"
import { csv } from "../csv.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { boundsOf, periodFlags, periodLine, selection } from "../period.ts"
import { amount, Json, note, show, type Table, tableOf } from "../terminal.ts"
import { FileInvalid } from "../errorMessages.ts"
import { readText, yaml } from "../files.ts"

const Amount = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 }))

const Prices = Schema.Struct({
  currency: Schema.optionalKey(Schema.String.check(Schema.isPattern(/^\S{1,8}$/))),
  models: Schema.Record(
    Schema.String,
    Schema.Struct({ in: Amount, out: Amount, cached: Schema.optionalKey(Amount) })
  )
})
const decode = Schema.decodeUnknownEffect(Prices, { onExcessProperty: "error" })

interface PriceList {
  readonly currency: string | undefined
  readonly prices: ReadonlyArray<Price>
}

/** YAML or JSON. A cached token costs as much as another of the prompt, unless the file says less. */
const readPrices = Effect.fnUntraced(function* (file: string) {
  const text = yield* readText(file, 1_048_576)
  const { parse } = yield* yaml
  const read = Effect.flatMap(Effect.try({ try: (): unknown => parse(text), catch: () => "no YAML" }), decode)
  const { currency, models } = yield* Effect.mapError(
    read,
    () =>
      new FileInvalid({
        file,
        problem:
          'it must have prices of a million tokens by model: models: { llama3.2:3b: { in: 0.1, out: 0.4, cached: 0.01 }, "*": { in: 1, out: 2 } }'
      })
  )
  const prices = Record.toEntries(models).map(([model, price]): Price => ({
    model,
    in: price.in,
    out: price.out,
    cached: price.cached ?? price.in
  }))
  return { currency, prices } satisfies PriceList
})

const missing = { tenant: "-", key: "-", model: "-", user: "(nobody named)", day: "-" } as const

const sumOf = ({ others, rows }: Report): Totals => {
  const all: ReadonlyArray<Totals> = others === undefined ? rows : [...rows, others]
  return Record.map(Totals.fields, (_, of) => all.reduce((total, row) => total + row[of], 0))
}

/** What is printed: a report by a column, with or without costs. */
interface Printed extends Report {
  readonly by: ReportColumn
  readonly prices: PriceList | undefined
}

type Cell = string | number | null | undefined
type Line = Totals & { readonly name: Cell; readonly label?: Cell; readonly tenant?: Cell }

type Columns = Readonly<Record<string, (line: Line) => Cell>>

/** The columns by their names. A key has two more. */
const columnsOf = ({ by, prices }: Printed): Columns => ({
  [by]: ({ name }) => name,
  ...(by === "key" ? { name: ({ label }) => label, tenant: ({ tenant }) => tenant } : {}),
  requests: ({ requests }) => requests,
  tokens_in: ({ tokensIn }) => tokensIn,
  tokens_cached: ({ tokensCached }) => tokensCached,
  tokens_out: ({ tokensOut }) => tokensOut,
  errors: ({ errors }) => errors,
  ...(by === "model"
    ? { loads: ({ loads }) => loads, load_s: ({ loadMs }) => Math.round(loadMs / 1000) }
    : {}),
  ...(prices === undefined ? {} : { cost: ({ cost }) => cost })
})

/** One object a row. The rows beyond `--top` are one more, without a name and with `others`, so that the sums stay whole. */
const toJson = (printed: Printed) => {
  const columns = columnsOf(printed)
  const { by, others, rows } = printed
  const one = (line: Line) => Record.map(columns, (cell) => cell(line))
  return [
    ...rows.map(one),
    ...(others === undefined ? [] : [{ [by]: null, others: others.count, ...one({ ...others, name: null }) }])
  ]
}

/** The rows, and one for those beyond `--top`. */
const linesOf = ({ others, rows }: Report, nameOf: (count: number) => string): ReadonlyArray<Line> =>
  others === undefined ? rows : [...rows, { ...others, name: nameOf(others.count), label: "", tenant: "" }]

/** One precision for all costs: that of the finest, from two to four digits. */
const moneyOf = (costs: ReadonlyArray<number>) => {
  const text = (cost: number, minimumFractionDigits: number) =>
    cost.toLocaleString("en-US", { minimumFractionDigits, maximumFractionDigits: 4 })
  const digits = Math.max(...costs.map((cost) => text(cost, 2).split(".")[1]?.length ?? 0))
  return (cost: number) => text(cost, digits)
}

const toTable = (printed: Printed): Table => {
  const { by, prices } = printed
  const sum = { ...sumOf(printed), name: "all", label: "", tenant: "" }
  const lines = [...linesOf(printed, (count) => `${amount(count)} others`), sum]
  const money = moneyOf(lines.map(({ cost }) => cost))
  const columns = Record.mapKeys(columnsOf({ ...printed, prices: undefined }), (name) => name.toUpperCase())
  return tableOf(lines, {
    ...columns,
    [by.toUpperCase()]: ({ name }) => name ?? missing[by],
    ...(prices === undefined
      ? {}
      : { [`COST ${prices.currency ?? ""}`.trimEnd()]: ({ cost }: Line) => money(cost) })
  })
}

/** Each line has the period and the currency, so that the files of two months can be put together. */
const toCsv = (printed: Printed): string => {
  const { currency } = printed.prices ?? {}
  const columns: Columns = {
    since: () => printed.period.ends[0],
    until: () => printed.period.ends[1],
    ...columnsOf(printed),
    ...(currency === undefined ? {} : { currency: () => currency })
  }
  const lines = linesOf(printed, (count) => `(${count} others)`)
  return csv(
    Object.keys(columns),
    lines.map((line) => Object.values(columns).map((cell) => cell(line) ?? null))
  )
}

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
    price: flags.optionalText(
      "price",
      "path",
      "A file with prices of a million tokens by model: adds the column COST"
    ),
    top: flags
      .count("top", "Rows to show, those with the most tokens; the rest is one row. 1 to 10000")
      .pipe(Flag.withDefault(1000)),
    csv: flags.toggle("csv", "Print CSV")
  },
  Effect.fnUntraced(function* ({ csv: asCsv, month, price, since, until, ...query }) {
    if (asCsv && (yield* Json)) {
      return yield* mustBe("csv", "given without --json")
    }
    const records = yield* Needs.records
    const prices = price === undefined ? undefined : yield* readPrices(price)
    const found = yield* records.report({
      ...query,
      ...(yield* boundsOf({ month, since, until })),
      prices: prices?.prices
    })
    const printed: Printed = { ...found, by: query.by, prices }
    yield* asCsv
      ? Console.log(toCsv(printed))
      : show(toJson(printed), toTable(printed), "", periodLine(printed.period))
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
