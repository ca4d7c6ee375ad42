/**
 * Writes one line for each message: flat JSON in production, readable text at a terminal.
 *
 * Every line passes here last. Keys lose their secret, causes lose the row values that Postgres quotes, and control
 * characters are escaped.
 */
import {
  Cause,
  Context,
  Effect,
  Layer,
  Logger,
  Option,
  Predicate,
  Redacted,
  References,
  Tracer
} from "effect"
import type { SettingsValues } from "../Settings.ts"
import { renderCause } from "./renderCause.ts"
import { redact } from "../domain/Key.ts"
import type { AuditRecord } from "../domain/AuditRecord.ts"
import { clientText } from "../domain/clientText.ts"
import { unsplit } from "../domain/json.ts"
import { totalTokens } from "../domain/Usage.ts"

/** One log line for an audited request, without addresses: all facts of its row in production, and a short one at a terminal. */
export type RequestLine = (record: AuditRecord) => Effect.Effect<void>

/** Writes the line of a request; undefined when requests have none. */
export const RequestLines = Context.Reference<RequestLine | undefined>(
  "tollgate/observability/RequestLines",
  { defaultValue: () => undefined }
)

/** A blocked path and an unknown model are text of the client. */
const shown = (text: string): string => clientText(text, 128)

/** `POST /api/chat  m:latest  200  7 in, 3 out  41 ms` */
export const shortRequestLine: RequestLine = ({
  arrival,
  errorType,
  hint,
  latencyMs,
  model,
  status,
  usage
}) =>
  Effect.logInfo(
    [
      `${arrival.method} ${shown(arrival.endpoint)}`,
      model === undefined ? "" : shown(model),
      `${status}${errorType === undefined ? "" : ` ${errorType}`}`,
      hint === undefined ? "" : `(${hint})`,
      totalTokens(usage) === 0 ? "" : `${usage.tokensIn} in, ${usage.tokensOut} out`,
      `${latencyMs} ms`
    ]
      .filter((part) => part !== "")
      .join("  ")
  )

export const requestLine: RequestLine = (record) =>
  Effect.logInfo("request", {
    request_id: record.arrival.requestId,
    key: record.caller?.keyPrefix,
    tenant: record.caller?.tenantName,
    method: record.arrival.method,
    endpoint: shown(record.arrival.endpoint),
    model: record.model === undefined ? undefined : shown(record.model),
    status: record.status,
    error: record.errorType,
    hint: record.hint,
    latency_ms: record.latencyMs,
    tokens_in: record.usage.tokensIn,
    tokens_out: record.usage.tokensOut
  })

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const satisfies Record<SettingsValues["logLevel"], unknown>

/** The levels at which each request has a line. */
const requestLevels: ReadonlySet<SettingsValues["logLevel"]> = new Set(["trace", "debug", "info"])

const isCausal = (part: unknown): boolean => part instanceof Error || Cause.isCause(part)

/** A value that JSON cannot hold becomes text, so that a log line never fails. */
const plain = (_: string, value: unknown): unknown =>
  typeof value === "bigint" || Redacted.isRedacted(value)
    ? String(value)
    : isCausal(value)
      ? renderCause(value, false)
      : value

const isFields = (part: unknown): part is object => Predicate.isObject(part) && !isCausal(part)

/** Whether a collector or the client has spans of this trace. A span that is not sampled is sent to nobody. */
const isKnownElsewhere = (span: Tracer.AnySpan): boolean =>
  span.sampled ||
  span._tag === "ExternalSpan" ||
  Option.match(span.parent, { onNone: () => false, onSome: isKnownElsewhere })

/** Names the trace of the request that a line is about. Without a collector no request has a trace. */
const traceFields = ({ fiber }: Logger.Options<unknown>): { readonly trace_id?: string } => {
  const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
  return span !== undefined && isKnownElsewhere(span) ? { trace_id: span.traceId } : {}
}

interface LogLine {
  readonly time: string
  readonly level: string
  readonly message: string
  readonly fields: object
  readonly cause: string | undefined
}

/** The first argument is the message. Objects after it are fields; errors, causes and texts after it are the cause. */
const toLogLine = (options: Logger.Options<unknown>): LogLine => {
  const { cause, date, fiber, logLevel, message } = options
  // What failed outside says it in its message. Frames are for those who read the code.
  const render = (failure: unknown) => renderCause(failure, logLevel === "Debug" || logLevel === "Trace")
  const [first, ...parts]: ReadonlyArray<unknown> = Array.isArray(message) ? message : [message]
  const causes = parts
    .filter((part) => part !== undefined && !isFields(part))
    .map((part) => (isCausal(part) ? render(part) : String(part)))
  if (cause.reasons.length > 0) causes.push(render(cause))
  return {
    time: date.toISOString(),
    level: logLevel.toLowerCase(),
    message: isFields(first) ? "" : isCausal(first) ? render(first) : String(first),
    fields: {
      ...fiber.getRef(References.CurrentLogAnnotations),
      ...traceFields(options),
      ...Object.assign({}, ...[first, ...parts].filter(isFields))
    },
    cause: causes.length === 0 ? undefined : causes.join("\n")
  }
}

const json = ({ cause, fields, level, message, time }: LogLine): string => {
  try {
    return JSON.stringify(
      { time, level, message, ...fields, ...(cause === undefined ? {} : { cause }) },
      plain
    )
  } catch (error) {
    return JSON.stringify({ time, level, message, unprintable: String(error) })
  }
}

/** `{"time","level","message",…}`, with objects and annotations as further fields. */
export const jsonLine = Logger.make<unknown, string>((options) => redact(unsplit(json(toLogLine(options)))))

const textOf = (value: unknown): string => {
  if (typeof value === "string") return value
  try {
    return JSON.stringify(value, plain) ?? String(value)
  } catch (error) {
    return `unprintable (${String(error)})`
  }
}

/** `05:10:54 WARN  message  name=value`, and the cause on lines of its own. */
export const textLine = Logger.make<unknown, string>((options) => {
  const { cause, fields, level, message, time } = toLogLine(options)
  const named = Object.entries(fields).map(([name, value]) => `  ${name}=${textOf(value)}`)
  const first = redact(`${time.slice(11, 19)} ${level.toUpperCase().padEnd(5)} ${message}${named.join("")}`)
  const below = cause === undefined ? "" : `\n  ${redact(cause, true).replaceAll("\n", "\n  ")}`
  return first + below
})

/** `isTerminal`: somebody watches, so requests have a short line outside of production too. */
export const layerLogging = (
  settings: Pick<SettingsValues, "logLevel" | "production">,
  isTerminal: boolean = false
) =>
  Layer.mergeAll(
    Logger.layer([Logger.withConsoleLog(settings.production ? jsonLine : textLine)]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel]),
    // A line below the log level is not built at all.
    Layer.succeed(
      RequestLines,
      !requestLevels.has(settings.logLevel)
        ? undefined
        : settings.production
          ? requestLine
          : isTerminal
            ? shortRequestLine
            : undefined
    )
  )
