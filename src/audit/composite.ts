/**
 * Rows as the text of an array of a composite type of Postgres: `{"(a,\"b c\",,3)","(…)"}`.
 *
 * Both the array and the row in it allow a value in double quotes, with a backslash before a quote or a backslash. That is
 * the text that `JSON.stringify` makes, as long as there is no control character and no lone surrogate, which it would
 * escape in JSON's way. So these are removed from each text that is not plain. The columns of the audit have none (`rows.ts`).
 */
import { replaceControls } from "../domain/text.ts"

type Value = string | number | boolean | null | object

/**
 * How the value of a column is written: `bare` as it is, for ids, times, numbers and truth values, which have nothing to
 * quote; `text` for every other text; `json` for an object.
 */
export type Kind = "bare" | "text" | "json"

/** A text that means the same in quotes and without: nearly every one is. */
const plain = /^[\w.:/+-]+$/

const quote = (text: string): string =>
  plain.test(text) ? text : JSON.stringify(replaceControls(text.toWellFormed()))

const written = (value: Value, kind: Kind): string => {
  if (kind === "json") return JSON.stringify(JSON.stringify(value))
  return kind === "text" ? quote(String(value)) : String(value)
}

/** Makes the text of rows with these columns. They are in the order of the attributes of the type. */
export const arrayOf = <R extends { readonly [C in keyof R]: Value }>(
  columns: ReadonlyArray<readonly [column: keyof R, kind: Kind]>
): ((rows: ReadonlyArray<R>) => string) => {
  const rowText = (row: R): string => {
    let text = ""
    for (const [column, kind] of columns) {
      const value = row[column]
      text += text === "" ? "(" : ","
      if (value !== null) text += written(value, kind)
    }
    return JSON.stringify(`${text})`)
  }
  return (rows) => {
    let text = ""
    for (const row of rows) text += `${text === "" ? "{" : ","}${rowText(row)}`
    return `${text}}`
  }
}
