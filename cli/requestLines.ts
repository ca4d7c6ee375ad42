/** Requests as lines and tables. */
import type { RequestRow } from "../src/admin/records/Records.ts"
import { amount, escapeText, table } from "./terminal.ts"

const second = (date: Date): string => date.toISOString().slice(0, 19).replace("T", " ")

const orNothing = (text: string | null): string => (text === null ? "-" : escapeText(text))

const cells = (row: RequestRow): ReadonlyArray<string> => [
  second(row.arrivedAt),
  `${row.status}${row.corrected ? "*" : ""}${row.repeats > 1 ? ` ×${amount(row.repeats)}` : ""}`,
  orNothing(row.tenant),
  orNothing(row.key),
  orNothing(row.model),
  amount(row.tokensIn),
  amount(row.tokensOut),
  amount(row.latencyMs),
  row.requestId,
  row.errorType ?? ""
]

/** `*` marks a corrected row, `×3` a row that stands for three requests. */
export const requestTable = (rows: ReadonlyArray<RequestRow>): string =>
  table(
    ["ARRIVED (UTC)", "STATUS", "TENANT", "KEY", "MODEL", "IN", "OUT", "MS", "REQUEST", "ERROR"],
    rows.map(cells)
  )

const widths = [19, 6, 12, 12, 20, 7, 7, 7, 36, 0]

/** One line, for a list that grows. */
export const requestLine = (row: RequestRow): string =>
  cells(row)
    .map((cell, column) => cell.padEnd(widths[column] ?? 0))
    .join("  ")
    .trimEnd()
