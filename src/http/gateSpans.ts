/**
 * The steps of a request as spans below its own. They are wrapped once, when the gateway is built. Without a collector the
 * functions stay as they are.
 */
import { Cause, Effect, Exit, Option } from "effect"
import type { GatewayError } from "../domain/Errors.ts"
import { outcomes } from "../domain/Outcome.ts"
import { Traced } from "../observability/Trace.ts"
import { toErrorResponse } from "./errors/errorResponses.ts"

type Wrap = <Args extends ReadonlyArray<unknown>, A, E extends GatewayError, R>(
  name: string,
  step: (...args: Args) => Effect.Effect<A, E, R>
) => (...args: Args) => Effect.Effect<A, E, R>

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
    Effect.suspend(() => step(...args)).pipe(
      Effect.onExit((exit) => Effect.annotateCurrentSpan("tollgate.verdict", verdictOf(exit))),
      (gated) => Effect.withSpan(gated, name, { captureStackTrace: false })
    )

const callSpan: Wrap =
  (name, step) =>
  (...args) =>
    Effect.withSpan(
      Effect.suspend(() => step(...args)),
      name,
      { kind: "client", captureStackTrace: false }
    )

const unwrapped: Wrap = (_, step) => step

/** `gate` adds the verdict of a gate; `call` is a call of the model server. */
export const makeSpans = Effect.map(Traced, (traced): { readonly gate: Wrap; readonly call: Wrap } =>
  traced ? { gate: gateSpan, call: callSpan } : { gate: unwrapped, call: unwrapped }
)
