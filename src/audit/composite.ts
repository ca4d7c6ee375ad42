/**
 * Rows as the text of an array of a composite type of Postgres: `{"(a,\"b c\",,3)","(…)"}`.
 *
 * Both the array and the row in it allow a value in double quotes, with a backslash before a quote or a backslash. That is
 * the text that `JSON.stringify` makes, as long as there is no control character and no lone surrogate, which it would
 * escape in JSON's way. So these are removed from each text that is not plain. The columns of the audit have none (`rows.ts`).
 */
import { replaceControls } from "../domain/text.ts"

export type Value = string | number | boolean | null | object

/** A text that means the same in quotes and without: nearly every value is one. */
const plain = /^[\w.:/+-]+$/

const valueText = (value: Value): string => {
  if (typeof value === "string") {
    return plain.test(value) ? value : JSON.stringify(replaceControls(value.toWellFormed()))
  }
  if (value === null) return ""
  return typeof value === "object" ? JSON.stringify(JSON.stringify(value)) : String(value)
}

/** Makes the text of rows with these columns, in the order of the attributes of the type. */
export const arrayOf =
  <R extends { readonly [C in keyof R]: Value }>(columns: ReadonlyArray<keyof R>) =>
  (rows: ReadonlyArray<R>): string => {
    let all = ""
    for (const row of rows) {
      let text = ""
      for (const column of columns) text += `${text === "" ? "(" : ","}${valueText(row[column])}`
      all += `${all === "" ? "{" : ","}${JSON.stringify(`${text})`)}`
    }
    return `${all}}`
  }
