/** Writes a table as CSV (RFC 4180). */

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

export const csv = (
  headers: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<string | number | null>>
): string => [headers, ...rows].map((row) => row.map(cell).join(",")).join("\r\n")
