/**
 * Mistakes the compiler has to refuse. Every `@ts-expect-error` is one; where it stops being an error, `tsc` says
 * that the expectation is unused, and `compile.test.ts` fails.
 */
import { Effect, type Layer } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import type { BackendCall } from "../../src/backend/Backend.ts"
import { Backend } from "../../src/backend/Backend.ts"
import type { Caller } from "../../src/domain/Caller.ts"
import type { Gate, GatewayError } from "../../src/domain/Errors.ts"
import type { Evidence } from "../../src/domain/Evidence.ts"
import type { Headroom } from "../../src/domain/Limits.ts"
import { issue, type Permit, type Proof } from "../../src/domain/Permit.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import type { Verdict } from "../../src/gates/meter/Meter.ts"
import type { Reservation } from "../../src/domain/Reservation.ts"
import type { Endpoint } from "../../src/http/endpoint.ts"
import { toErrorResponse } from "../../src/http/errorResponses.ts"
import type { RequestContext } from "../../src/request/RequestContext.ts"

declare const call: BackendCall
declare const headroom: Headroom
declare const reservation: Reservation
declare const proof: Proof
declare const context: RequestContext
declare const endpoint: Endpoint
declare const verdict: Verdict
declare const caller: Caller
declare const sqlFailure: Effect.Effect<never, SqlError>

export const backendWithoutPermit = Effect.gen(function* () {
  const backend = yield* Backend
  // @ts-expect-error a permit cannot be written down: only the evidence of every gate makes one
  return yield* backend.forward({ caller, model: { name: "m" }, headroom, reservation, requestId: "x" }, call)
})

// @ts-expect-error evidence cannot be written as a literal
export const forged: Evidence<"Limiter", Headroom> = { gate: "Limiter", value: headroom }

export const swallowed = Effect.gen(function* () {
  const [limiter, keys] = [yield* Limiter, yield* KeyStore]
  const rate = yield* limiter.judge(verdict).pipe(Effect.catchTag("Unavailable", () => Effect.void))
  // @ts-expect-error swallowing Unavailable leaves void where evidence is required
  issue({ ...proof, Limiter: rate })
  const key = yield* keys.verify("secret")
  // @ts-expect-error evidence of one gate does not stand in for another
  issue({ ...proof, Limiter: key })
})

// @ts-expect-error a permit needs every gate
export const incomplete: Permit = issue({ KeyStore: proof.KeyStore, Discovery: proof.Discovery })

// @effect-diagnostics missingEffectError:off
// @ts-expect-error a database error has to become a GatewayError before it may reach an endpoint
export const leaky = endpoint(context, sqlFailure)

// @ts-expect-error an error without a face does not exist
toErrorResponse({ _tag: "SomethingNew" })

type Faces = { readonly [T in GatewayError["_tag"]]: number }
// @ts-expect-error a table of faces has to be complete
export const faces: Faces = { BadRequest: 400, Unauthorized: 401 }

// @ts-expect-error an outage matrix has to name every gate
export const outages: Record<Gate, Layer.Layer<never> | undefined> = {
  KeyStore: undefined,
  Limiter: undefined
}
