/** One line a message: flat JSON for machines in production, readable text at a terminal. */
import { Cause, Layer, Logger, Predicate, References } from "effect"
import { RequestLines } from "../pipeline/requestLine.ts"
import type { SettingsValues } from "../Settings.ts"

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const satisfies Record<SettingsValues["logLevel"], unknown>

/** What cannot be JSON is told as text; a log line never fails. */
const plain = (_: string, value: unknown): unknown =>
  typeof value === "bigint" || value instanceof Error ? String(value) : value

/** A cause that was logged as a value beside the words. */
const causeOf = (part: unknown): string | undefined =>
  Cause.isCause(part) ? Cause.pretty(part) : part instanceof Error ? (part.stack ?? String(part)) : undefined

const isFields = (part: unknown): part is object =>
  Predicate.isObject(part) && !(part instanceof Error) && !Cause.isCause(part)

/** `{"time","level","message",…}`: words in the message, objects and annotations as fields of their own. */
export const jsonLine = Logger.make<unknown, string>(({ cause, date, fiber, logLevel, message }) => {
  const parts = Array.isArray(message) ? message : [message]
  const causes = parts.map(causeOf).filter((text) => text !== undefined)
  if (cause.reasons.length > 0) causes.push(Cause.pretty(cause))
  const line = {
    time: date.toISOString(),
    level: logLevel.toLowerCase(),
    message: parts
      .filter((part) => !isFields(part) && causeOf(part) === undefined)
      .map(String)
      .join(" "),
    ...fiber.getRef(References.CurrentLogAnnotations),
    ...Object.assign({}, ...parts.filter(isFields)),
    ...(causes.length === 0 ? {} : { cause: causes.join("\n") })
  }
  try {
    return JSON.stringify(line, plain)
  } catch (error) {
    return JSON.stringify({
      time: line.time,
      level: line.level,
      message: line.message,
      unprintable: String(error)
    })
  }
})

export const layerLogging = (settings: Pick<SettingsValues, "logLevel" | "production">) =>
  Layer.mergeAll(
    Logger.layer([settings.production ? Logger.withConsoleLog(jsonLine) : Logger.consolePretty()]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel]),
    Layer.succeed(RequestLines, settings.production)
  )
