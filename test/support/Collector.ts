/** An OpenTelemetry collector on a loopback port: what was sent to it, as text and as spans. */
import { createServer } from "node:http"
import { Context, Effect, Layer, Schema } from "effect"
import { layerTracing } from "../../src/observability/tracing.ts"
import { listening } from "./listening.ts"

const Value = Schema.Struct({
  stringValue: Schema.optional(Schema.String),
  intValue: Schema.optional(Schema.Union([Schema.Finite, Schema.String])),
  doubleValue: Schema.optional(Schema.Finite),
  boolValue: Schema.optional(Schema.Boolean),
  arrayValue: Schema.optional(
    Schema.Struct({ values: Schema.Array(Schema.Struct({ stringValue: Schema.String })) })
  )
})

const Span = Schema.Struct({
  traceId: Schema.String,
  spanId: Schema.String,
  parentSpanId: Schema.optional(Schema.String),
  name: Schema.String,
  kind: Schema.Finite,
  startTimeUnixNano: Schema.String,
  endTimeUnixNano: Schema.String,
  attributes: Schema.Array(Schema.Struct({ key: Schema.String, value: Value })),
  status: Schema.Struct({ code: Schema.Finite })
})

const Sent = Schema.fromJsonString(
  Schema.Struct({
    resourceSpans: Schema.Array(
      Schema.Struct({ scopeSpans: Schema.Array(Schema.Struct({ spans: Schema.Array(Span) })) })
    )
  })
)

export interface CollectedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId: string | undefined
  readonly name: string
  /** 1 internal, 2 server, 3 client */
  readonly kind: number
  readonly startedAt: bigint
  readonly endedAt: bigint
  /** 1 ok, 2 error */
  readonly status: number
  readonly attributes: Readonly<Record<string, unknown>>
}

const plain = ({ arrayValue, boolValue, doubleValue, intValue, stringValue }: typeof Value.Type): unknown =>
  arrayValue?.values.map((one) => one.stringValue) ??
  (intValue === undefined ? (stringValue ?? doubleValue ?? boolValue) : Number(intValue))

const spansOf = (body: string): ReadonlyArray<CollectedSpan> =>
  Schema.decodeSync(Sent)(body).resourceSpans.flatMap(({ scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        ...span,
        parentSpanId: span.parentSpanId,
        startedAt: BigInt(span.startTimeUnixNano),
        endedAt: BigInt(span.endTimeUnixNano),
        status: span.status.code,
        attributes: Object.fromEntries(span.attributes.map(({ key, value }) => [key, plain(value)]))
      }))
    )
  )

export class Collector extends Context.Service<
  Collector,
  {
    readonly url: string
    /** path and body of each batch */
    readonly bodies: ReadonlyArray<string>
    readonly spans: () => ReadonlyArray<CollectedSpan>
  }
>()("test/Collector") {}

export const layerCollector = Layer.effect(
  Collector,
  Effect.gen(function* () {
    const bodies: Array<string> = []
    const server = createServer((request, response) => {
      let body = ""
      request.on("data", (chunk) => (body += String(chunk)))
      request.on("end", () => {
        bodies.push(`${request.url} ${body}`)
        response.end("{}")
      })
    })
    const url = yield* listening(server)
    return {
      url,
      bodies,
      spans: () => bodies.flatMap((sent) => spansOf(sent.slice(sent.indexOf(" ") + 1)))
    }
  })
)

/** `gateway`, with its traces sent to a collector of its own. */
export const traced = <A, E, R>(gateway: Layer.Layer<A, E, R>, otlpSampleRatio: number) =>
  gateway.pipe(
    Layer.provideMerge(
      Layer.unwrap(
        Effect.map(Collector, ({ url }) => layerTracing({ otlpEndpoint: new URL(url), otlpSampleRatio }))
      )
    ),
    Layer.provideMerge(Layer.fresh(layerCollector))
  )
