/**
 * Sends traces over OTLP when `OTLP_ENDPOINT` is set. Spans are sent in batches in the background. A collector that is slow
 * or away costs spans, never requests.
 */
import { Effect, Layer, References } from "effect"
import { FetchHttpClient, HttpBody, HttpClient, HttpClientError } from "effect/http"
import { OtlpSerialization, OtlpTracer } from "effect/observability"
import { redactKeys } from "../domain/Key.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"
import { makeSampler, Sampling, Traced } from "./Trace.ts"
import type { SettingsValues } from "../Settings.ts"
import { version } from "../version.ts"

/** A batch that the collector does not accept within this time is lost. */
const sendTimeout = "5 seconds"

/**
 * Number of batches, of up to 1000 spans each, that are sent at a time. Further ones are lost; the exporter then pauses for a
 * minute.
 */
const maxInFlight = 8

const remindMs = 60_000

const layerCollector = Layer.effect(
  HttpClient.HttpClient,
  Effect.gen(function* () {
    let inFlight = 0
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs })
    const logLoss = (reason: string) => log.failed(() => Effect.logWarning("traces lost", { reason }))
    return HttpClient.transform(yield* HttpClient.HttpClient, (response, request) =>
      Effect.suspend(() => {
        // The exporter does not retry this kind of error, and there are too many attempts already.
        if (inFlight >= maxInFlight)
          return Effect.fail(
            failed(new HttpClientError.EncodeError({ request, description: "too many batches" }))
          )
        inFlight++
        return response.pipe(
          Effect.timeoutOrElse({
            duration: sendTimeout,
            orElse: () =>
              Effect.fail(
                failed(
                  new HttpClientError.TransportError({ request, description: "the collector is too slow" })
                )
              )
          }),
          Effect.ensuring(Effect.sync(() => void inFlight--))
        )
      }).pipe(
        Effect.tap(({ status }) =>
          status < 300 ? Effect.void : logLoss(`the collector answers with ${status}`)
        ),
        Effect.tapError((error) =>
          logLoss(
            error.reason._tag === "EncodeError" ? "the collector is too slow" : "no answer from the collector"
          )
        )
      )
    )
  })
).pipe(Layer.provide(FetchHttpClient.layer))

const failed = (reason: HttpClientError.HttpClientErrorReason) =>
  new HttpClientError.HttpClientError({ reason })

type Span = OtlpTracer.ScopeSpan["spans"][number]

const attributeOf = ({ attributes }: Span, name: string) => attributes.find(({ key }) => key === name)?.value

/**
 * `chat m:latest`, as the convention for generative AI has it. The model is known only after the span has begun, and a span
 * cannot be renamed before it is sent.
 */
const nameOf = (span: Span): string => {
  const operation = attributeOf(span, "gen_ai.operation.name")?.stringValue
  const model = attributeOf(span, "gen_ai.request.model")?.stringValue
  return typeof operation === "string" && typeof model === "string" ? `${operation} ${model}` : span.name
}

/** `STATUS_CODE_ERROR` */
const errorCode = 2

/** A status of 500 or more is a failure of the span, by the convention for HTTP servers. */
const isFailed = (span: Span): boolean =>
  Number(attributeOf(span, "http.response.status_code")?.intValue) >= 500

/** Removes the messages of failures: they may quote the model server, Postgres or a client. The log has them. */
const withoutMessages = (data: OtlpTracer.TraceData): OtlpTracer.TraceData => ({
  resourceSpans: data.resourceSpans.map((resource) => ({
    ...resource,
    scopeSpans: resource.scopeSpans.map((scope) => ({
      ...scope,
      spans: scope.spans.map((span) => ({
        ...span,
        name: nameOf(span),
        status: { code: isFailed(span) ? errorCode : span.status.code },
        events: span.events.map((event) => ({
          ...event,
          attributes: event.attributes.filter(({ key }) => key === "exception.type")
        }))
      }))
    }))
  }))
})

/** Removes the secrets of keys from the JSON of all spans, just before it is sent. */
const layerRedactedJson = Layer.effect(
  OtlpSerialization.OtlpSerialization,
  Effect.map(OtlpSerialization.OtlpSerialization, (json) => ({
    ...json,
    traces: (data: OtlpTracer.TraceData) => {
      const body = json.traces(withoutMessages(data))
      return body._tag === "Uint8Array"
        ? HttpBody.text(redactKeys(Buffer.from(body.body).toString()), body.contentType)
        : HttpBody.empty
    }
  }))
).pipe(Layer.provide(OtlpSerialization.layerJson))

/** `endpoint` is the collector's base URL; `/v1/traces` is added unless it ends in it. */
const tracesUrl = (endpoint: URL): string =>
  endpoint.pathname.endsWith("/v1/traces")
    ? endpoint.href
    : new URL("v1/traces", endpoint.href.endsWith("/") ? endpoint : `${endpoint.href}/`).href

export const layerTracing = (
  settings: Pick<SettingsValues, "otlpEndpoint" | "otlpSampleRatio">
): Layer.Layer<never> =>
  settings.otlpEndpoint === undefined
    ? Layer.succeed(References.TracerEnabled, false)
    : Layer.mergeAll(
        Layer.succeed(Traced, true),
        Layer.succeed(Sampling, makeSampler(settings.otlpSampleRatio)),
        // Each request enables it for itself, so nothing else has spans (`http/requestSpan.ts`).
        Layer.succeed(References.TracerEnabled, false),
        OtlpTracer.layer({
          url: tracesUrl(settings.otlpEndpoint),
          resource: { serviceName: "tollgate", serviceVersion: version },
          exportInterval: "2 seconds",
          shutdownTimeout: "2 seconds"
        }).pipe(Layer.provide([layerRedactedJson, layerCollector]))
      )
