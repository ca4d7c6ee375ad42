/**
 * How a failure is told in a log line: names, messages and stacks, down to the first cause.
 *
 * Postgres repeats the row it refuses in `detail` and `where`, and the value it cannot read in the messages of class
 * 22 (data exception): prompts, models and whatever else a client sent. Those are left out here, for every log line
 * and trace there is, so that no place that logs a cause has to think of it.
 */
import { Cause, Predicate } from "effect"

const deepest = 6

const textAt = (value: object, name: string): string | undefined => {
  const held: unknown = Reflect.get(value, name)
  return typeof held === "string" && held !== "" ? held : undefined
}

/** A message of the server itself: it alone has a severity beside its SQLSTATE. */
const ofPostgres = (error: object): boolean =>
  textAt(error, "severity") !== undefined && /^[0-9A-Z]{5}$/.test(textAt(error, "code") ?? "")

/** Its words unless they quote data, and the names that lead to the place. */
const postgresText = (error: object): string => {
  const code = textAt(error, "code") ?? ""
  const names = ["table", "column", "constraint", "routine"].flatMap((name) => {
    const text = textAt(error, name)
    return text === undefined ? [] : [`${name} ${text}`]
  })
  const words = code.startsWith("22") ? "" : `: ${textAt(error, "message") ?? ""}`
  return `Postgres ${[code, ...names].join(", ")}${words}`
}

const framesOf = (error: object): ReadonlyArray<string> =>
  (textAt(error, "stack") ?? "").split("\n").filter((line) => /^\s+at /.test(line))

const headOf = (error: object): string => {
  const name = textAt(error, "_tag") ?? textAt(error, "name") ?? "Error"
  const message = textAt(error, "message")
  return message === undefined || message === name ? name : `${name}: ${message}`
}

const linesOf = (error: unknown, depth: number): ReadonlyArray<string> => {
  if (!Predicate.isObject(error)) return [String(error)]
  if (ofPostgres(error)) return [postgresText(error)]
  const cause: unknown = Reflect.get(error, "cause")
  const below =
    cause === undefined || depth >= deepest
      ? []
      : linesOf(cause, depth + 1).map((line, n) => (n === 0 ? `  caused by ${line}` : `  ${line}`))
  return [headOf(error), ...framesOf(error), ...below]
}

/** A cause or an error, one line a frame. */
export const renderCause = (failure: unknown): string => {
  if (!Cause.isCause(failure)) return linesOf(failure, 0).join("\n")
  const told = failure.reasons.flatMap((reason) => {
    switch (reason._tag) {
      case "Fail":
        return linesOf(reason.error, 0)
      case "Die":
        return linesOf(reason.defect, 0)
      case "Interrupt":
        return []
    }
  })
  return told.length === 0 ? "interrupted" : told.join("\n")
}
