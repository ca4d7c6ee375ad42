/**
 * The traces of requests: whether there are any, which requests have one, and the header `traceparent` of W3C Trace Context,
 * which joins spans of several processes. `tracestate` and `baggage` are neither read nor sent: they are free text of a
 * client. Nor are the headers of B3, which `HttpTraceContext.toHeaders` would send as well.
 */
import { createHmac, randomBytes } from "node:crypto"
import { Context, Effect, Option, References, type Tracer } from "effect"
import { Headers, HttpTraceContext } from "effect/http"

/** Whether spans are collected (`OTLP_ENDPOINT`). Without a collector nothing of a request has a span. */
export const Traced = Context.Reference<boolean>("tollgate/observability/Traced", {
  defaultValue: () => false
})

/** Takes work out of the trace of the request that starts it, because the work goes on after the request. */
export const untraced = Effect.provideService(References.TracerEnabled, false)

/** Whether a request is traced. `parent` is the span of its client. */
export type Sampler = (parent: Tracer.ExternalSpan | undefined) => boolean

/**
 * Traces a part of the requests (`OTLP_SAMPLE_RATIO`).
 *
 * A client that does not sample its trace gets no spans. A client that does gets them for the ratio of its traces, so it
 * cannot make the gateway send more than the ratio. It chooses its trace ids, so they are hashed with a random key: it
 * cannot choose ids that are always sampled. The key belongs to one process. So a process decides the same for all
 * requests of a trace, and two replicas may decide differently.
 */
export const makeSampler = (ratio: number, key: Buffer = randomBytes(32)): Sampler => {
  const isWithinRatio = (traceId: string): boolean =>
    ratio >= 1 || createHmac("sha256", key).update(traceId).digest().readUInt32BE() / 2 ** 32 < ratio
  return (parent) =>
    parent === undefined ? Math.random() < ratio : parent.sampled && isWithinRatio(parent.traceId)
}

/** The sampler in force. Without a setting every request is traced that its client does not exclude. */
export const Sampling = Context.Reference<Sampler>("tollgate/observability/Sampling", {
  defaultValue: () => makeSampler(1)
})

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
