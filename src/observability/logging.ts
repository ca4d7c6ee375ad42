/**
 * Writes one line for each message: flat JSON in production, readable text at a terminal.
 *
 * Every line passes here last. Keys lose their secret, causes lose the row values that Postgres quotes, and control
 * characters are escaped.
 */
import { Cause, Layer, Logger, Predicate, Redacted, References } from "effect"
import { RequestLines } from "./requestLine.ts"
import type { SettingsValues } from "../Settings.ts"
import { renderCause } from "./renderCause.ts"
import { printable } from "./redact.ts"

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const satisfies Record<SettingsValues["logLevel"], unknown>

/** The levels at which a request has a line. */
const telling: ReadonlySet<SettingsValues["logLevel"]> = new Set(["trace", "debug", "info"])

const isCausal = (part: unknown): boolean => part instanceof Error || Cause.isCause(part)

/** What cannot be JSON is told as text; a log line never fails. */
const plain = (_: string, value: unknown): unknown =>
  typeof value === "bigint" || Redacted.isRedacted(value)
    ? String(value)
    : isCausal(value)
      ? renderCause(value)
      : value

const isFields = (part: unknown): part is object => Predicate.isObject(part) && !isCausal(part)

interface Told {
  readonly time: string
  readonly level: string
  readonly message: string
  readonly fields: object
  readonly cause: string | undefined
}

const tell = ({ cause, date, fiber, logLevel, message }: Logger.Options<unknown>): Told => {
  const parts = Array.isArray(message) ? message : [message]
  const causes = parts.filter(isCausal).map(renderCause)
  if (cause.reasons.length > 0) causes.push(renderCause(cause))
  return {
    time: date.toISOString(),
    level: logLevel.toLowerCase(),
    message: parts
      .filter((part) => !Predicate.isObject(part))
      .map(String)
      .join(" "),
    fields: {
      ...fiber.getRef(References.CurrentLogAnnotations),
      ...Object.assign({}, ...parts.filter(isFields))
    },
    cause: causes.length === 0 ? undefined : causes.join("\n")
  }
}

const json = ({ cause, fields, level, message, time }: Told): string => {
  try {
    return JSON.stringify(
      { time, level, message, ...fields, ...(cause === undefined ? {} : { cause }) },
      plain
    )
  } catch (error) {
    return JSON.stringify({ time, level, message, unprintable: String(error) })
  }
}

/** `{"time","level","message",…}`: words in the message, objects and annotations as fields of their own. */
export const jsonLine = Logger.make<unknown, string>((options) => printable(json(tell(options))))

const textOf = (value: unknown): string => {
  if (typeof value === "string") return value
  try {
    return JSON.stringify(value, plain) ?? String(value)
  } catch (error) {
    return `unprintable (${String(error)})`
  }
}

/** `05:10:54 WARN  message  name=value`, and a cause on lines of its own. */
export const textLine = Logger.make<unknown, string>((options) => {
  const { cause, fields, level, message, time } = tell(options)
  const named = Object.entries(fields).map(([name, value]) => `  ${name}=${textOf(value)}`)
  const first = printable(
    `${time.slice(11, 19)} ${level.toUpperCase().padEnd(5)} ${message}${named.join("")}`
  )
  const below = cause === undefined ? "" : `\n  ${printable(cause, true).replaceAll("\n", "\n  ")}`
  return first + below
})

export const layerLogging = (settings: Pick<SettingsValues, "logLevel" | "production">) =>
  Layer.mergeAll(
    Logger.layer([Logger.withConsoleLog(settings.production ? jsonLine : textLine)]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel]),
    // A line that no level lets through is not made in the first place.
    Layer.succeed(RequestLines, settings.production && telling.has(settings.logLevel))
  )
