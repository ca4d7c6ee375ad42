/**
 * Makes a span of each request, from its arrival to its last byte, with the facts of its audit row and without prompts. A
 * client's `traceparent` is ignored: with it, a client could decide what is sampled and under which trace.
 */
import { Effect, type Scope, type Tracer } from "effect"
import type { RequestContext } from "../request/RequestContext.ts"

/** A blocked path is text of the client, so it does not become the name of a span. */
const nameOf = ({ arrival: { endpoint, method }, served }: RequestContext): string =>
  served ? `${method} ${endpoint}` : "blocked path"

const describe = (span: Tracer.Span, context: RequestContext): void => {
  const { caller, cost, model, modelResolved, outcome } = context
  const { usage } = cost
  const facts = {
    "http.request.method": context.arrival.method,
    "http.response.status_code": outcome?.status,
    "error.type": outcome?.type,
    "tollgate.request_id": context.arrival.requestId,
    "tollgate.tenant": caller?.tenantName,
    "tollgate.key_prefix": caller?.keyPrefix,
    "gen_ai.request.model": modelResolved ? model : undefined,
    "gen_ai.usage.input_tokens": usage.tokensIn,
    "gen_ai.usage.output_tokens": usage.tokensOut,
    "tollgate.streamed": context.streamed
  }
  for (const [name, value] of Object.entries(facts)) if (value !== undefined) span.attribute(name, value)
}

export const withRequestSpan = <A, E, R>(
  context: RequestContext,
  handled: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R | Scope.Scope> =>
  Effect.gen(function* () {
    const span = yield* Effect.makeSpanScoped(nameOf(context), { kind: "server", root: true })
    // Runs before the span ends, after everything else of the request.
    yield* Effect.addFinalizer(() => Effect.sync(() => describe(span, context)))
    return yield* Effect.withParentSpan(handled, span)
  })
