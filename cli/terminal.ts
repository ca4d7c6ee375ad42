/** The output of commands: results on stdout, as a table or as JSON; everything else on stderr. */
import { Console, Effect, Predicate } from "effect"
import { CliOutput, Flag, GlobalFlag } from "effect/cli"
import { unsplit } from "../src/domain/json.ts"
import { escapeControls, snakeCase } from "../src/domain/text.ts"

export const Json = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(Flag.withDefault(false), Flag.withDescription("Print the result as JSON"))
})

/** Breaks a text between words into lines of at most `room` columns. A longer word has a line of its own. */
export const broken = (text: string, room: number): ReadonlyArray<string> => {
  const lines: Array<string> = []
  let line = ""
  for (const word of text.split(" ")) {
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

/** The columns of the terminal. Without limit when the output is not a terminal. */
export const columns = (): number =>
  process.stdout.isTTY ? process.stdout.columns : Number.POSITIVE_INFINITY

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

/** Prints the result of a command: `json` with `--json`, else `text`. */
export const show = (json: unknown, text: string) =>
  Effect.flatMap(Json, (asJson) => Console.log(asJson ? toJson(json) : text))

/** Prints a list: `none` when it is empty. */
export const showList = <A>(rows: ReadonlyArray<A>, none: string, text: (rows: ReadonlyArray<A>) => string) =>
  show(rows, rows.length === 0 ? none : text(rows))

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

const gap = 2
const minColumn = 8

const cut = (text: string, width: number): string => {
  const characters = [...text]
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join("")}…`
}

/**
 * Left-aligned columns. The widest columns are cut until a line fits `width`. Nothing is cut when the output is not a
 * terminal.
 */
export const table = (
  headers: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<string>>,
  width: number = columns()
): string => {
  const lines = [headers, ...rows]
  const widths = headers.map((_, column) =>
    Math.max(...lines.map((line) => [...(line[column] ?? "")].length))
  )
  const total = () => widths.reduce((sum, one) => sum + one + gap, -gap)
  for (
    let widest = Math.max(...widths);
    total() > width && widest > minColumn;
    widest = Math.max(...widths)
  ) {
    widths[widths.indexOf(widest)] = widest - 1
  }
  const cell = (text: string, width: number) =>
    cut(text, width) + " ".repeat(Math.max(0, width - [...text].length))
  return lines
    .map((line) =>
      widths
        .map((one, column) => cell(line[column] ?? "", one))
        .join(" ".repeat(gap))
        .trimEnd()
    )
    .join("\n")
}

/** A table of `rows` by its columns. */
export const tableOf = <A>(
  rows: ReadonlyArray<A>,
  columns: { readonly [header: string]: (row: A) => string }
): string =>
  table(
    Object.keys(columns),
    rows.map((row) => Object.values(columns).map((cell) => cell(row)))
  )

/** `2026-11-21 05:10`, in UTC. */
export const minute = (date: Date | null): string =>
  date === null ? "-" : date.toISOString().slice(0, 16).replace("T", " ")

/** `1234567` as `1,234,567`. */
export const amount = (value: number | null): string => (value === null ? "-" : value.toLocaleString("en-US"))

/** "1 key", "2 keys" */
export const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`

/** Escapes control characters in texts of people and models: they would move the cursor or reverse the line. */
export const escapeText = (text: string): string => escapeControls(text, "\n\t")

/** A text as one word of a command line. */
export const shellWord = (text: string): string =>
  /^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
