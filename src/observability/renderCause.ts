/**
 * Renders a failure for a log line: names, messages and stacks. The first cause comes first, because it says what happened
 * (`connect ECONNREFUSED 10.0.0.5:5432`); the errors that drivers made of it follow.
 *
 * Postgres quotes a refused row in `detail` and `where`, and an unreadable value in the messages of class 22 (data
 * exception). V8 quotes the text that is no JSON. They may contain prompts and other client text, so they are left out here,
 * for every log line and trace.
 */
import { Cause, Predicate } from "effect"

const maxDepth = 6

const textAt = (value: object, name: string): string | undefined => {
  const text: unknown = Reflect.get(value, name)
  return typeof text === "string" && text !== "" ? text : undefined
}

/** Whether the error comes from the Postgres server: only such errors have a severity and a SQLSTATE. */
const isPostgresError = (error: object): boolean =>
  textAt(error, "severity") !== undefined && /^[0-9A-Z]{5}$/.test(textAt(error, "code") ?? "")

/** The message, unless it quotes data, and the names of table, column, constraint and routine. */
const postgresText = (error: object): string => {
  const code = textAt(error, "code") ?? ""
  const names = ["table", "column", "constraint", "routine"].flatMap((name) => {
    const text = textAt(error, name)
    return text === undefined ? [] : [`${name} ${text}`]
  })
  const message = code.startsWith("22") ? "" : `: ${textAt(error, "message") ?? ""}`
  return `Postgres ${[code, ...names].join(", ")}${message}`
}

const framesOf = (error: object): ReadonlyArray<string> =>
  (textAt(error, "stack") ?? "").split("\n").filter((line) => /^\s+at /.test(line))

const headOf = (error: object): string => {
  const name = textAt(error, "_tag") ?? textAt(error, "name") ?? "Error"
  const message = error instanceof SyntaxError ? undefined : textAt(error, "message")
  return message === undefined || message === name ? name : `${name}: ${message}`
}

/** An error and its frames, the first cause first. */
const blocksOf = (error: unknown, frames: boolean, depth = 0): ReadonlyArray<ReadonlyArray<string>> => {
  if (!Predicate.isObject(error)) return [[String(error)]]
  if (isPostgresError(error)) return [[postgresText(error)]]
  const cause: unknown = Reflect.get(error, "cause")
  const first = cause === undefined || depth >= maxDepth ? [] : blocksOf(cause, frames, depth + 1)
  return [...first, [headOf(error), ...(frames ? framesOf(error) : [])]]
}

const linesOf = (error: unknown, frames: boolean): ReadonlyArray<string> =>
  blocksOf(error, frames).flatMap(([head = "", ...rest], n) => [n === 0 ? head : `  became ${head}`, ...rest])

/**
 * Renders a cause or an error. `frames`: whether errors have a line for each stack frame. A defect always has them: nothing else
 * says where it is.
 */
export const renderCause = (failure: unknown, frames = true): string => {
  if (!Cause.isCause(failure)) return linesOf(failure, frames).join("\n")
  const lines = failure.reasons.flatMap((reason) => {
    switch (reason._tag) {
      case "Fail":
        return linesOf(reason.error, frames)
      case "Die":
        return linesOf(reason.defect, true)
      case "Interrupt":
        return []
    }
  })
  return lines.length === 0 ? "interrupted" : lines.join("\n")
}
