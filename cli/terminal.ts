/** The output of commands: results on stdout, as a table or as JSON; everything else on stderr. */
import { Console, Effect, Predicate } from "effect"
import { CliOutput, Flag, GlobalFlag } from "effect/cli"
import { utc } from "../src/domain/Calendar.ts"
import { unsplit } from "../src/domain/json.ts"
import { escapeControls, snakeCase } from "../src/domain/text.ts"
import { times } from "./zone.ts"

export { counted } from "../src/domain/text.ts"

export const Json = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(Flag.withDefault(false), Flag.withDescription("Print the result as JSON"))
})

export const Wide = GlobalFlag.Setting("wide")({
  flag: Flag.Boolean("wide").pipe(
    Flag.withDefault(false),
    Flag.withDescription("Print tables as wide as they are, whatever the terminal's width")
  )
})

/** Breaks a text between words into lines of at most `room` columns, and a longer word where it must be. */
export const broken = (text: string, room: number): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let line = ""
  const longest = new RegExp(`.{1,${Math.max(1, room)}}`, "gu")
  for (const word of text.split(" ").flatMap((one) => one.match(longest) ?? [""])) {
    const longer = line === "" ? word : `${line} ${word}`
    if (line !== "" && CliOutput.displayWidth(longer) > room) {
      lines.push(line)
      line = word
    } else line = longer
  }
  return [...lines, line]
}

export const padded = (text: string, to: number): string =>
  text + " ".repeat(Math.max(0, to - CliOutput.displayWidth(text)))

/** JSON output has snake_case names. Names that people choose are values, never names of fields. */
const toJson = (value: unknown, indent = 2): string =>
  unsplit(
    JSON.stringify(
      value,
      (_, part: unknown) =>
        Predicate.isObject(part) && !Array.isArray(part)
          ? Object.fromEntries(Object.entries(part).map(([name, field]) => [snakeCase(name), field]))
          : part,
      indent
    )
  )

/** For lists that grow: one object a line. */
export const toJsonLine = (value: unknown): string => toJson(value, 0)

const isTime = (cell: Cell): boolean => Predicate.isObject(cell) && !Array.isArray(cell)

/** Prints the result of a command: `json` with `--json`, else the parts of a text. */
export const show = Effect.fnUntraced(function* (json: unknown, ...parts: ReadonlyArray<string | Table>) {
  if (yield* Json) return yield* Console.log(toJson(json))
  // Without limit when the output is no terminal.
  const isLimited = process.stdout.isTTY && !(yield* Wide)
  const width = isLimited ? process.stdout.columns : Number.POSITIVE_INFINITY
  // A table without times needs no database.
  const hasTimes = parts.some((part) => typeof part !== "string" && part.rows.flat().some(isTime))
  const timeText = hasTimes ? yield* times : undefined
  return yield* Console.log(
    parts.map((part) => (typeof part === "string" ? part : render(part, width, timeText))).join("\n")
  )
})

/** Prints a list: `none` when it is empty. */
export const showList = <A>(
  rows: ReadonlyArray<A>,
  none: string,
  text: (rows: ReadonlyArray<A>) => string | Table
) => show(rows, rows.length === 0 ? none : text(rows))

/** Prints notes on stderr, so that a pipe gets the result only. */
export const notes = (texts: Iterable<string>): Effect.Effect<void> =>
  Effect.forEach(texts, (text) => Console.error(text), { discard: true })

/** Prints notes, unless the output is JSON. */
export const notesAsText = (texts: Iterable<string>) =>
  Effect.flatMap(Json, (asJson) => (asJson ? Effect.void : notes(texts)))

export const note = (text: string) => notes([text])
export const noteAsText = (text: string) => notesAsText([text])

/** `3h 5m`, `2d 4h`, `12s`: the two largest units. */
export const duration = (ms: number): string => {
  const seconds = Math.max(0, Math.round(ms / 1000))
  const parts = [
    `${Math.floor(seconds / 86_400)}d`,
    `${Math.floor(seconds / 3600) % 24}h`,
    `${Math.floor(seconds / 60) % 60}m`,
    `${seconds % 60}s`
  ]
  const first = parts.findIndex((part, n) => !part.startsWith("0") || n === 3)
  return parts.slice(first, first + 2).join(" ")
}

/** What a table shows: a number with its thousands, a time to the minute or as `form` says, no value as "-". */
export type Cell =
  | string
  | number
  | Date
  | { readonly at: Date; readonly form: "second" | "end" }
  | ReadonlyArray<string>
  | null
  | undefined

/** The end of a life, or what there is instead. */
export const endCell = (at: Date | null, none: string | null = null): Cell =>
  at === null ? none : { at, form: "end" }

type TimeText = (date: Date, form?: "second" | "end") => string

const inUtc: TimeText = (date, form) => utc.textOf(date.getTime(), form)

export const shown = (cell: Cell, timeText: TimeText = inUtc): string => {
  if (typeof cell === "number") return amount(cell)
  if (typeof cell === "string") return escapeText(cell)
  if (cell instanceof Date) return timeText(cell)
  if (Predicate.hasProperty(cell, "form")) return timeText(cell.at, cell.form)
  return escapeText(cell?.join(", ") || "-")
}

export interface Table {
  /** undefined: the first cell of each row is a name */
  readonly headers: ReadonlyArray<string> | undefined
  readonly rows: ReadonlyArray<ReadonlyArray<Cell>>
}

/** A table of `rows` by its columns. */
export const tableOf = <A>(
  rows: ReadonlyArray<A>,
  columns: { readonly [header: string]: (row: A) => Cell }
): Table => ({
  headers: Object.keys(columns),
  rows: rows.map((row) => Object.values(columns).map((cell) => cell(row)))
})

/** Names and values, a line for each. */
export const factsOf = (facts: ReadonlyArray<readonly [name: string, value: Cell]>): Table => ({
  headers: undefined,
  rows: facts
})

const gap = 2
const leastColumn = 8

/**
 * Left-aligned columns. When they are wider than the terminal, the widest are broken into lines. The first column stays: it names
 * the row. Where there are too many columns for that, each row is a block of lines.
 */
export const render = ({ headers, rows: cells }: Table, width: number, timeText = inUtc): string => {
  const rows = cells.map((row) => row.map((cell) => shown(cell, timeText)))
  const lines = headers === undefined ? rows : [headers, ...rows]
  const partsOf = (cell: string) => cell.split("\n")
  const widths = (lines[0] ?? []).map((_, column) =>
    Math.max(...lines.flatMap((line) => partsOf(line[column] ?? "").map(CliOutput.displayWidth)))
  )
  const excess = () => widths.reduce((sum, one) => sum + one + gap, -gap) - width
  for (;;) {
    const widest = Math.max(...widths.slice(1))
    if (excess() <= 0 || widest <= leastColumn) break
    widths[widths.indexOf(widest, 1)] = widest - 1
  }
  if (headers !== undefined && excess() > 0) {
    const blocks = rows.map((row) =>
      render({ headers: undefined, rows: headers.map((header, n) => [header, row[n] ?? ""]) }, width)
    )
    return blocks.join("\n\n")
  }
  return lines
    .flatMap((line) => {
      const cells = line.map((cell, n) => partsOf(cell).flatMap((part) => broken(part, widths[n] ?? 0)))
      return Array.from({ length: Math.max(...cells.map(({ length }) => length)) }, (_, part) =>
        cells
          .map((cell, n) => padded(cell[part] ?? "", widths[n] ?? 0))
          .join(" ".repeat(gap))
          .trimEnd()
      )
    })
    .join("\n")
}

/** `1234567` as `1,234,567`. */
export const amount = (value: number | null): string => (value === null ? "-" : value.toLocaleString("en-US"))

/** Escapes control characters in texts of people and models: they would move the cursor or reverse the line. */
export const escapeText = (text: string): string => escapeControls(text, "\n\t")
