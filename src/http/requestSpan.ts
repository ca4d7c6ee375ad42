/**
 * Makes a span of each request, from its arrival to its last byte, with the facts of its audit row and without prompts. It
 * continues the trace of the client's `traceparent`. Its attributes are those of OpenTelemetry's conventions for HTTP and
 * generative AI; those that the conventions do not have start with `tollgate.`.
 *
 * Spans are enabled here only, so discovery, readiness and other background work have none.
 */
import { IncomingMessage } from "node:http"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect, Option, References, type Scope, type Tracer } from "effect"
import { HttpServerRequest } from "effect/http"
import type { InferenceKind } from "../domain/Inference.ts"
import { readTraceparent, type Sampler } from "../observability/Trace.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { headerOf } from "./server/headers.ts"

/** A blocked path is text of the client, so it does not become the name of a span. */
const nameOf = ({ arrival: { method }, route }: RequestContext): string =>
  route === undefined ? "blocked path" : `${method} ${route.path}`

/** `gen_ai.operation.name`. Descriptions and counts are no operations of the convention. */
const operations = {
  chat: "chat",
  generate: "text_completion",
  embed: "embeddings",
  embeddings: "embeddings",
  show: undefined,
  count: undefined
} as const satisfies { readonly [K in InferenceKind]: string | undefined }

/** Facts of chat and generate. An answer that the gateway ended has no final frame and ends with `length`. */
const outputFacts = ({ cost, said: { asked } }: RequestContext) => {
  const { firstFrameMs } = cost.call
  const request = cost.permit?.facts.request
  const temperature = request?.options["temperature"]
  return {
    "gen_ai.request.stream": asked?.stream,
    "gen_ai.request.max_tokens": request?.maxTokens,
    "gen_ai.request.temperature": typeof temperature === "number" ? temperature : undefined,
    "gen_ai.response.finish_reasons":
      cost.ended?.outcome.status === 200 ? [cost.final?.doneReason ?? "length"] : undefined,
    // The convention measures it from the request, in seconds.
    "gen_ai.response.time_to_first_chunk": firstFrameMs === undefined ? undefined : firstFrameMs / 1000,
    "gen_ai.usage.output_tokens": cost.usage.tokensOut
  }
}

/** Names of models come from discovery or from an administrator. A model that does not resolve is text of the client. */
const modelFacts = (context: RequestContext) => {
  const { cost } = context
  const { alias, model, request } = cost.facts
  if (model === undefined || request === undefined) return {}
  const { kind } = request
  const operation = operations[kind]
  if (operation === undefined) return {}
  return {
    "gen_ai.operation.name": operation,
    "gen_ai.provider.name": "ollama",
    "gen_ai.request.model": alias ?? model.name,
    "gen_ai.response.model": cost.sent ? model.name : undefined,
    "gen_ai.usage.input_tokens": cost.usage.tokensIn,
    ...(kind === "chat" || kind === "generate" ? outputFacts(context) : {})
  }
}

const describe = (span: Tracer.Span, context: RequestContext): void => {
  const { arrival, caller, route } = context
  const { ended } = context.cost
  const facts = {
    "http.request.method": arrival.method,
    "http.route": route?.path,
    "http.response.status_code": ended?.outcome.status,
    "error.type": ended?.outcome.type,
    "tollgate.request_id": arrival.requestId,
    "tollgate.tenant": caller?.tenantName,
    "tollgate.key_prefix": caller?.keyPrefix,
    ...modelFacts(context)
  }
  for (const [name, value] of Object.entries(facts)) if (value !== undefined) span.attribute(name, value)
}

/** The span of the client, from its `traceparent`. */
const clientSpan = Effect.map(Effect.serviceOption(HttpServerRequest.HttpServerRequest), (request) => {
  if (Option.isNone(request)) return undefined
  const incoming = NodeHttpServerRequest.toIncomingMessage(request.value)
  return incoming instanceof IncomingMessage ? readTraceparent(headerOf(incoming, "traceparent")) : undefined
})

export const withRequestSpan = <A, E, R>(
  context: RequestContext,
  isSampled: Sampler,
  handled: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R | Scope.Scope> =>
  Effect.gen(function* () {
    const parent = yield* clientSpan
    const span = yield* Effect.makeSpanScoped(nameOf(context), {
      kind: "server",
      sampled: isSampled(parent),
      ...(parent === undefined ? { root: true } : { parent })
    })
    // Runs before the span ends, after everything else of the request.
    yield* Effect.addFinalizer(() => Effect.sync(() => describe(span, context)))
    return yield* Effect.withParentSpan(handled, span)
  }).pipe(Effect.provideService(References.TracerEnabled, true))
