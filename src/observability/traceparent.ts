/**
 * The header `traceparent` of W3C Trace Context, which joins spans of several processes to one trace. `tracestate` and
 * `baggage` are neither read nor sent: they are free text of a client.
 */
import { Effect, Tracer } from "effect"

/** Version, trace id, span id and flags. A later version may have more fields behind them. */
const shape = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/

/** The span of the sender; undefined when the header is absent or malformed. */
export const readTraceparent = (header: string | undefined): Tracer.ExternalSpan | undefined => {
  if (header === undefined || header.length > 512) return undefined
  const [, version, traceId, spanId, flags = "", more] = shape.exec(header) ?? []
  if (traceId === undefined || spanId === undefined) return undefined
  if (version === "00" && more !== undefined) return undefined
  return Tracer.externalSpan({ traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 })
}

/** The header that makes `span` the parent of what its receiver does. */
export const traceparentOf = ({ sampled, spanId, traceId }: Tracer.AnySpan): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`

/** The header for the current span; undefined outside of a request. */
export const currentTraceparent: Effect.Effect<string | undefined> = Effect.match(Effect.currentParentSpan, {
  onFailure: () => undefined,
  onSuccess: traceparentOf
})
