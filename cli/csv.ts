/** Writes and reads tables as CSV (RFC 4180, but lines end as everywhere: `cut` would leave a CR at the end of a key). */
import { Option } from "effect"

/**
 * A spreadsheet takes a text that begins with one of these as a formula, and a client can choose such a name. A quote
 * before it makes it a text.
 */
const formula = /^[=+\-@\t\r]/

const cell = (value: string | number | null): string => {
  if (value === null) return ""
  if (typeof value === "number") return String(value)
  const text = formula.test(value) ? `'${value}` : value
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}

type Cells = ReadonlyArray<string | number | null>

/** The lines of rows, without a line of headers. */
export const csvLines = (rows: ReadonlyArray<Cells>): string =>
  rows.map((row) => row.map(cell).join(",")).join("\n")

export const csv = (headers: ReadonlyArray<string>, rows: ReadonlyArray<Cells>): string =>
  csvLines([headers, ...rows])

/** A cell as it was before `csv` wrote it. */
export const unquoted = (text: string): string =>
  formula.test(text.slice(1)) ? text.replace(/^'/, "") : text

/**
 * Reads a table whose cells are separated by comma, semicolon or tab: the first of them in the first line. Lines without text
 * are left out. None: a quote is where it may not be.
 */
export const readCsv = (text: string): Option.Option<ReadonlyArray<ReadonlyArray<string>>> => {
  const [separator = ","] = /[,;\t]/.exec(/^.*/.exec(text)?.[0] ?? "") ?? []
  const next = new RegExp(`(?:"((?:[^"]|"")*)"|([^"${separator}\\r\\n]*))(${separator}|\\r?\\n|$)`, "y")
  const rows: Array<ReadonlyArray<string>> = []
  let row: Array<string> = []
  for (;;) {
    const found = next.exec(text)
    if (found === null) return Option.none()
    const [, quoted, plain = "", end] = found
    row.push((quoted?.replaceAll('""', '"') ?? plain).trim())
    if (end === separator) continue
    if (row.some((one) => one !== "")) rows.push(row)
    row = []
    if (end === "") return Option.some(rows)
  }
}
