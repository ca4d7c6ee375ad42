/**
 * The header `traceparent` of W3C Trace Context, which joins spans of several processes to one trace. `tracestate` and
 * `baggage` are neither read nor sent: they are free text of a client. Nor are the headers of B3, which
 * `HttpTraceContext.toHeaders` would send as well.
 */
import { Effect, Option, type Tracer } from "effect"
import { Headers, HttpTraceContext } from "effect/http"

/** The span of the sender; undefined when the header is absent or malformed. */
export const readTraceparent = (traceparent: string | undefined): Tracer.ExternalSpan | undefined =>
  traceparent === undefined
    ? undefined
    : Option.getOrUndefined(HttpTraceContext.w3c(Headers.fromRecordUnsafe({ traceparent })))

/** The header that makes `span` the parent of what its receiver does. */
const traceparentOf = ({ sampled, spanId, traceId }: Tracer.AnySpan): string =>
  `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`

/** The header for the current span; undefined outside of a request. */
export const currentTraceparent: Effect.Effect<string | undefined> = Effect.match(Effect.currentParentSpan, {
  onFailure: () => undefined,
  onSuccess: traceparentOf
})
