/**
 * A request as a span, from its arrival to its last byte, with what its audit row says and no word of anybody's prompt.
 * A client's own `traceparent` is not taken up: whoever has a key could decide what is sampled and under which trace.
 */
import { Effect, type Scope, type Tracer } from "effect"
import type { RequestContext } from "../request/RequestContext.ts"
import { routeOf } from "../http/routes.ts"

/** A path that is not served is the client's own text: it names no span. */
const nameOf = ({ arrival: { method, endpoint } }: RequestContext): string =>
  routeOf(method, endpoint) === undefined ? "blocked path" : `${method} ${endpoint}`

const describe = (span: Tracer.Span, context: RequestContext): void => {
  const { caller, model, modelResolved, outcome, usage } = context
  const facts = {
    "http.request.method": context.arrival.method,
    "http.response.status_code": outcome?.status,
    "error.type": outcome?.errorType,
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
    // Before the span ends, after everything the request has to do.
    yield* Effect.addFinalizer(() => Effect.sync(() => describe(span, context)))
    return yield* Effect.withParentSpan(handled, span)
  })
