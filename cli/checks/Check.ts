/** What a check of `status` and `doctor` found, and how it is printed. */
import { Cause, Duration, Effect, References } from "effect"
import { storeFault } from "../../src/infra/storeFault.ts"
import { explain } from "../../src/observability/explain.ts"
import { tableOf } from "../terminal.ts"

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

/** Runs checks. When what they need cannot be built, that is what the check found. */
export const checked = <E>(
  name: string,
  checks: Effect.Effect<ReadonlyArray<Check>, E>
): Effect.Effect<ReadonlyArray<Check>> =>
  checks.pipe(
    Effect.catchCause((cause) =>
      Effect.succeed([failed(name, explain(Cause.squash(cause)), "see the settings in docs/reference.md")])
    ),
    // What a check finds is printed, not logged.
    Effect.provideService(References.MinimumLogLevel, "None")
  )

/** A store cannot be used. */
export const storeFailed = (name: "database" | "cache", error: unknown): Check => {
  const { fault, mend } = storeFault(error)
  return failed(name, `${fault}: ${explain(error)}`, mend)
}

/** A line for each check, and what to do below it. */
export const checkTable = (checks: ReadonlyArray<Check>) =>
  tableOf(checks, {
    CHECK: ({ name }) => name,
    STATE: ({ state }) => state,
    DETAIL: ({ detail, mend }) => (mend === undefined ? detail : `${detail}\n-> ${mend}`)
  })

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
