/**
 * Rows as the text of an array of a composite type of Postgres: `{"(a,\"b c\",,3)","(…)"}`.
 *
 * Both the array and the row in it allow a value in double quotes, with a backslash before a quote or a backslash. That is
 * the text that `JSON.stringify` makes, as long as there is no control character and no lone surrogate, which it would
 * escape in JSON's way. So these are removed from each text that is not plain. The columns of the audit have none (`rows.ts`).
 *
 * Only such values are quoted for the array, not the text of the whole row: most rows have none, and copying each row once
 * more takes 0.2 µs and 0.5 to 0.9 KB (`bench/RESULTS.md`).
 */
import { replaceControls } from "../domain/text.ts"

type Value = string | number | boolean | null | object

/**
 * How the value of a column is written: `bare` as it is, for ids, times, numbers and truth values, which have nothing to
 * quote; `text` for every other text; `json` for an object, or a text as JSON.
 */
export type Kind = "bare" | "text" | "json"

/** A text that means the same in quotes and without: nearly every one is. */
const plain = /^[\w.:/+-]+$/

/** A value in quotes. It is a value of a row, and the row is a value of an array, so it is quoted twice. */
const quoted = (text: string): string => JSON.stringify(JSON.stringify(text)).slice(1, -1)

/** What `quoted` puts around the JSON of a plain text. */
const [before = "", after = ""] = quoted(JSON.stringify("|")).split("|")

const written = (value: Value, kind: Kind): string => {
  if (kind === "json")
    return typeof value === "string" && plain.test(value)
      ? `${before}${value}${after}`
      : quoted(JSON.stringify(value))
  const text = String(value)
  return kind === "bare" || plain.test(text) ? text : quoted(replaceControls(text.toWellFormed()))
}

/** Makes the text of rows with these columns. They are in the order of the attributes of the type. */
export const arrayOf = <R extends { readonly [C in keyof R]: Value }>(
  columns: ReadonlyArray<readonly [column: keyof R, kind: Kind]>
): ((rows: ReadonlyArray<R>) => string) => {
  const rowText = (row: R): string => {
    let text = ""
    for (const [column, kind] of columns) {
      const value = row[column]
      text += text === "" ? '"(' : ","
      if (value !== null) text += written(value, kind)
    }
    return `${text})"`
  }
  return (rows) => {
    let text = ""
    for (const row of rows) text += `${text === "" ? "{" : ","}${rowText(row)}`
    return `${text}}`
  }
}
