/** What a check of `status` and `doctor` found, and how it is printed. */
import { Predicate } from "effect"
import { redact } from "../../src/observability/redact.ts"
import { broken, columns, padded } from "../terminal.ts"

export interface Check {
  readonly name: string
  /** `warning`: it works, but it may not work later or protect less than it could */
  readonly state: "ok" | "warning" | "failed"
  readonly detail: string
  /** what to do about it */
  readonly mend?: string
}

export const ok = (name: string, detail: string): Check => ({ name, state: "ok", detail })
export const warning = (name: string, detail: string, mend: string): Check => ({
  name,
  state: "warning",
  detail,
  mend
})
export const failed = (name: string, detail: string, mend: string): Check => ({
  name,
  state: "failed",
  detail,
  mend
})

/** One line for each check, and what to do below it. Nothing is cut: long lines are broken. */
export const checkTable = (checks: ReadonlyArray<Check>, width = columns()): string => {
  const headers = { name: "CHECK", state: "STATE", detail: "DETAIL" }
  const of = (column: "name" | "state") =>
    Math.max(...[headers, ...checks].map((check) => check[column].length)) + 2
  const [names, states] = [of("name"), of("state")]
  const room = Math.max(20, width - names - states)
  return [headers, ...checks]
    .flatMap((check) => {
      const mend = "mend" in check && check.mend !== undefined ? broken(`-> ${check.mend}`, room) : []
      const [first = "", ...rest] = [...broken(check.detail, room), ...mend]
      const indent = " ".repeat(names + states)
      return [
        padded(check.name, names) + padded(check.state, states) + first,
        ...rest.map((line) => indent + line)
      ]
    })
    .join("\n")
}

const maxDepth = 8
const maxLength = 300

/** The innermost error with a message: drivers wrap the error of the system or of the server several times. */
const innermost = (error: unknown, depth = 0): string | undefined => {
  if (depth > maxDepth || !Predicate.isObject(error)) return undefined
  const [first] = "errors" in error && Array.isArray(error.errors) ? error.errors : []
  const inner = ["reason", "cause"].map((name) => (name in error ? Reflect.get(error, name) : undefined))
  for (const next of [...inner, first]) {
    const found = innermost(next, depth + 1)
    if (found !== undefined) return found
  }
  const text = (name: string): string => {
    const value: unknown = Reflect.get(error, name)
    return typeof value === "string" ? value : ""
  }
  const [code, message] = [text("code"), text("message")]
  if (message === "" && code === "") return undefined
  return message === "" || message.includes(code) ? message || code : `${message} (${code})`
}

/** The actual error, on one line and without keys. The operator at the terminal may see it, a client never. */
export const explain = (error: unknown): string => {
  const text = redact(innermost(error) ?? "no answer")
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`
}

/** `1.2 ms` */
export const took = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`

const maxSkewMs = 1000

/** `behindMs`: how far the other clock is behind the clock of this machine. */
export const clockCheck = (name: string, behindMs: number): Check =>
  Math.abs(behindMs) <= maxSkewMs
    ? ok(name, `within ${maxSkewMs / 1000} s of this machine`)
    : warning(
        name,
        `${(Math.abs(behindMs) / 1000).toFixed(1)} s ${behindMs > 0 ? "behind" : "ahead of"} this machine`,
        "synchronise the clocks (NTP): days of budgets and ends of keys follow them"
      )
