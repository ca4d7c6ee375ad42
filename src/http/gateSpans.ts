/**
 * The steps of a request as spans below its own. They are wrapped once, when the gateway is built. Without a collector the
 * functions stay as they are.
 */
import { Cause, Effect, Exit, Option } from "effect"
import type { GatewayError } from "../domain/Errors.ts"
import { outcomes } from "../domain/Outcome.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Traced } from "../observability/Trace.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { toErrorResponse } from "./errors/errorResponses.ts"

type Step<Args extends ReadonlyArray<unknown>, A, E, R> = (...args: Args) => Effect.Effect<A, E, R>

type Wrap = <Args extends ReadonlyArray<unknown>, A, E extends GatewayError, R>(
  name: string,
  step: Step<Args, A, E, R>
) => Step<Args, A, E, R>

/** A step that is called with `yield*` in the generator of another one. The fiber takes no step for it. */
type InlineStep<Args extends ReadonlyArray<unknown>, A, E, R> = (...args: Args) => Effect.fn.Return<A, E, R>

type WrapInline = <Args extends ReadonlyArray<unknown>, A, E extends GatewayError, R>(
  name: string,
  step: InlineStep<Args, A, E, R>
) => InlineStep<Args, A, E, R>

/** `admitted`, or the type of the error that the client gets. */
const verdictOf = (exit: Exit.Exit<unknown, GatewayError>): string => {
  if (Exit.isSuccess(exit)) return "admitted"
  const error = Option.getOrUndefined(Cause.findErrorOption(exit.cause))
  if (error !== undefined) return toErrorResponse(error).type
  return Cause.hasInterruptsOnly(exit.cause) ? "interrupted" : outcomes.internalError.type
}

const gateSpan: Wrap =
  (name, step) =>
  (...args) =>
    Effect.useSpan(name, (span) =>
      Effect.onExit(Effect.withParentSpan(step(...args), span), (exit) =>
        Effect.sync(() => span.attribute("tollgate.verdict", verdictOf(exit)))
      )
    )

const inlineGateSpan: WrapInline = (name, step) => {
  const gate = gateSpan(name, Effect.fnUntraced(step))
  return function* (...args) {
    return yield* gate(...args)
  }
}

const callSpan: Wrap =
  (name, step) =>
  (...args) =>
    Effect.withSpan(step(...args), name, { kind: "client", captureStackTrace: false })

const unwrapped: Wrap = (_, step) => step
const unwrappedInline: WrapInline = (_, step) => step

interface Spans {
  /** a gate, with its verdict */
  readonly gate: Wrap
  readonly inlineGate: WrapInline
  /** a call of the model server */
  readonly call: Wrap
  /** a call of the model server that succeeds with the first frame */
  readonly frames: <Rest extends ReadonlyArray<unknown>, A, E extends GatewayError, R>(
    name: string,
    step: InlineStep<[RequestContext, ...Rest], A, E, R>
  ) => InlineStep<[RequestContext, ...Rest], A, E, R>
}

const traced = (nowMs: () => number): Spans => ({
  gate: gateSpan,
  inlineGate: inlineGateSpan,
  call: callSpan,
  frames: (name, step) => {
    const call = callSpan(name, Effect.fnUntraced(step))
    return function* (context, ...rest) {
      const answer = yield* call(context, ...rest)
      yield* Effect.ignore(
        Effect.map(Effect.currentSpan, (span) =>
          // The convention measures it from the request, in seconds.
          span.attribute("gen_ai.response.time_to_first_chunk", (nowMs() - context.arrivedMs) / 1000)
        )
      )
      return answer
    }
  }
})

const untraced: Spans = {
  gate: unwrapped,
  inlineGate: unwrappedInline,
  call: unwrapped,
  frames: (_, step) => step
}

export const makeSpans = Effect.gen(function* () {
  return (yield* Traced) ? traced(yield* makeMonotonicMs) : untraced
})
