/**
 * Traces over OTLP when there is somewhere to send them, else nothing at all. Spans leave in batches in the background;
 * a collector that is slow or gone costs spans, never requests.
 */
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { Effect, Layer, References } from "effect"
import { HttpBody, HttpClient, HttpClientError } from "effect/http"
import { OtlpSerialization, OtlpTracer } from "effect/observability"
import { redactKeys } from "../domain/Key.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"
import { Traced } from "./Trace.ts"
import type { SettingsValues } from "../Settings.ts"
import { version } from "../version.ts"

/** A collector that takes no request within this time has lost the batch. */
const patience = "5 seconds"

/** Batches of up to 1000 spans that may be under way; what comes then is lost, and the exporter rests for a minute. */
const mostUnderWay = 8

const remindMs = 60_000

const layerCollector = Layer.effect(
  HttpClient.HttpClient,
  Effect.gen(function* () {
    let underWay = 0
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs })
    const logLoss = (reason: string) => log.failed(() => Effect.logWarning("traces lost", { reason }))
    return HttpClient.transform(yield* HttpClient.HttpClient, (response, request) =>
      Effect.suspend(() => {
        // Of the errors there are, one that is not tried again: there are too many tries already.
        if (underWay >= mostUnderWay)
          return Effect.fail(
            failed(new HttpClientError.EncodeError({ request, description: "too many batches" }))
          )
        underWay++
        return response.pipe(
          Effect.timeoutOrElse({
            duration: patience,
            orElse: () =>
              Effect.fail(
                failed(
                  new HttpClientError.TransportError({ request, description: "the collector is too slow" })
                )
              )
          }),
          Effect.ensuring(Effect.sync(() => void underWay--))
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
).pipe(Layer.provide(NodeHttpClient.layerUndici))

const failed = (reason: HttpClientError.HttpClientErrorReason) =>
  new HttpClientError.HttpClientError({ reason })

/** What a failure said may be the model server's or Postgres's words, or a client's: the log tells it, once. */
const wordless = (data: OtlpTracer.TraceData): OtlpTracer.TraceData => ({
  resourceSpans: data.resourceSpans.map((resource) => ({
    ...resource,
    scopeSpans: resource.scopeSpans.map((scope) => ({
      ...scope,
      spans: scope.spans.map((span) => ({
        ...span,
        status: { code: span.status.code },
        events: span.events.map((event) => ({
          ...event,
          attributes: event.attributes.filter(({ key }) => key === "exception.type")
        }))
      }))
    }))
  }))
})

/** As JSON, the last place a span passes: nothing that looks like a key leaves the process with its secret. */
const layerRedactedJson = Layer.effect(
  OtlpSerialization.OtlpSerialization,
  Effect.map(OtlpSerialization.OtlpSerialization, (json) => ({
    ...json,
    traces: (data: OtlpTracer.TraceData) => {
      const body = json.traces(wordless(data))
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

export const layerTracing = (settings: Pick<SettingsValues, "otlpEndpoint">): Layer.Layer<never> =>
  settings.otlpEndpoint === undefined
    ? Layer.succeed(References.TracerEnabled, false)
    : Layer.mergeAll(
        Layer.succeed(Traced, true),
        OtlpTracer.layer({
          url: tracesUrl(settings.otlpEndpoint),
          resource: { serviceName: "tollgate", serviceVersion: version },
          exportInterval: "2 seconds",
          shutdownTimeout: "2 seconds"
        }).pipe(Layer.provide([layerRedactedJson, layerCollector]))
      )
