/** What a check of `status` and `doctor` found, and how it is printed. */
import { Duration } from "effect"
import { storeFault } from "../../src/infra/storeFault.ts"
import { explain } from "../../src/observability/explain.ts"
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
const wrong =
  (state: "warning" | "failed") =>
  (name: string, detail: string, mend: string): Check => ({ name, state, detail, mend })
export const warning = wrong("warning")
export const failed = wrong("failed")

/** A store cannot be used. */
export const storeFailed = (name: "database" | "cache", error: unknown): Check => {
  const { fault, mend } = storeFault(error)
  return failed(name, `${fault}: ${explain(error)}`, mend)
}

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

/** `1.2 ms` */
export const took = (time: Duration.Duration): string => {
  const ms = Duration.toMillis(time)
  return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`
}

/** Whether a connection is encrypted, or needs not be because the server is on this machine. */
export const tlsCheck = (
  name: string,
  server: string,
  encrypted: boolean,
  local: boolean,
  mend: string
): Check => {
  if (encrypted) return ok(name, "the connection is encrypted")
  return local
    ? ok(name, `not needed: ${server} is on this machine`)
    : warning(name, "the connection is not encrypted", mend)
}

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
