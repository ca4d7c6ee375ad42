/**
 * Ways around the gates that the compiler has to refuse. Every `@ts-expect-error` is one; where it stops being an error,
 * the compiler says that the expectation is unused, and `compile.test.ts` fails.
 *
 * What the compiler cannot refuse, and what does:
 * - `{} as Permit`: lint (`no-unsafe-type-assertion`, and `as` is not used in this repository).
 * - `const permit: Permit = JSON.parse("{}")`, or any other value of type `any`: nothing before it runs. Then `spend` is no
 *   function or the private field is missing, so the call throws.
 * - Importing `seal` outside the layer of its gate: `test/unit/architecture.test.ts`.
 * - A layer of a gate that seals without asking its store: the contract suite of its port, in `test/contract`.
 * - A second call with one permit: `spend` throws at run time (`test/unit/domain/Permit.test.ts`).
 */
import { uncounted } from "../../src/memory/MemoryLedger.ts"
import { Effect, type Layer } from "effect"
import type { SqlError } from "effect/sql/SqlError"
import { Audit } from "../../src/audit/Audit.ts"
import { Backend } from "../../src/backend/Backend.ts"
import type { Caller } from "../../src/domain/Caller.ts"
import type { Gate, GatewayError } from "../../src/domain/Errors.ts"
import {
  type Asked,
  type Carried,
  type Complete,
  type Evidence,
  type Facts,
  type Link,
  type Permit,
  seal
} from "../../src/domain/Evidence.ts"
import type { InferenceRequest, ModelCall } from "../../src/domain/Inference.ts"
import type { Headroom } from "../../src/domain/Limits.ts"
import type { Model } from "../../src/domain/Model.ts"
import type { Reservation } from "../../src/domain/Reservation.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { Reserved } from "../../src/gates/meter/Meter.ts"
import { Discovery } from "../../src/gates/models/Discovery.ts"
import { FairQueue } from "../../src/gates/queue/FairQueue.ts"
import type { EndRequest } from "../../src/http/endRequest.ts"
import { toErrorResponse } from "../../src/http/errors/errorResponses.ts"
import type { RequestContext } from "../../src/request/RequestContext.ts"

declare const asked: Asked
declare const call: ModelCall
declare const caller: Caller
declare const context: RequestContext
declare const endRequest: EndRequest
declare const headroom: Headroom
declare const model: Model
declare const otherRequest: InferenceRequest
declare const reservation: Reservation
declare const sqlFailure: Effect.Effect<never, SqlError>
declare const key: Evidence<"KeyStore">
declare const resolved: Evidence<"Discovery">
declare const reserved: Evidence<"Limiter">
declare const queued: Evidence<"Queue">
declare const permit: Permit
declare const reservedKnown: Facts<"Limiter">

/** The way through the gates compiles. */
export const story = Effect.gen(function* () {
  const [keys, discovery, limiter, queue] = [
    yield* KeyStore,
    yield* Discovery,
    yield* Limiter,
    yield* FairQueue
  ]
  const [audit, backend] = [yield* Audit, yield* Backend]
  const verified = yield* keys.verify("secret")
  const found = yield* discovery.resolve(verified, asked)
  const place = yield* queue.enter(yield* limiter.reserve(found), () => ({ tokens: 0, loadMs: undefined }))
  return yield* backend.forward(yield* audit.open(place), uncounted)
})

export const invented = Effect.gen(function* () {
  const [discovery, limiter, queue] = [yield* Discovery, yield* Limiter, yield* FairQueue]
  const [audit, backend] = [yield* Audit, yield* Backend]
  // @ts-expect-error a caller whom nobody verified
  yield* discovery.resolve(caller, asked)
  // @ts-expect-error a key that was written down
  yield* discovery.resolve({ link: "KeyStore", facts: { caller } }, asked)
  // @ts-expect-error a model that nobody resolved
  yield* limiter.reserve({ link: "Discovery", facts: { ...asked, caller, model } })
  // @ts-expect-error a reservation that nobody made
  yield* queue.enter({ link: "Limiter", facts: reservedKnown }, () => 0)
  // @ts-expect-error a verdict of the Meter is no evidence, whoever wrote it
  yield* queue.enter(new Reserved({ reservation, headroom }), () => 0)
  // @ts-expect-error a place that nobody gave
  yield* audit.open({ link: "Queue", facts: reserved.facts })
  const written = { link: "Audit" as const, facts: queued.facts, used: false, spend: () => queued.facts }
  // @ts-expect-error a permit that was written down
  yield* Effect.asVoid(backend.forward(written, uncounted))
})

export const shortcuts = Effect.gen(function* () {
  const [discovery, limiter, queue] = [yield* Discovery, yield* Limiter, yield* FairQueue]
  const [audit, backend] = [yield* Audit, yield* Backend]
  // @ts-expect-error without a model
  yield* limiter.reserve(key)
  // @ts-expect-error without a reservation
  yield* queue.enter(resolved, () => 0)
  // @ts-expect-error without a place in the line
  yield* audit.open(reserved)
  // @ts-expect-error without an intent row
  yield* Effect.asVoid(backend.forward(queued, uncounted))
  // @ts-expect-error a later link does not stand in for an earlier one
  yield* discovery.resolve(permit, asked)
})

export const changed = Effect.gen(function* () {
  const backend = yield* Backend
  const other = { request: otherRequest, numPredict: 1_000_000_000, runs: 1 }
  // @ts-expect-error another request than the one that was admitted
  yield* Effect.asVoid(backend.forward(permit, uncounted, other))
  // @ts-expect-error the call of a permit cannot be changed
  permit.facts.call.numPredict = 1_000_000_000
  // @ts-expect-error nor replaced
  permit.facts.call = call
  // @ts-expect-error a copy is no permit
  yield* Effect.asVoid(backend.forward({ ...permit }, uncounted))
  // @ts-expect-error nor are two permits that were mixed
  yield* Effect.asVoid(backend.forward({ ...permit, facts: { ...permit.facts, model } }, uncounted))
})

export const swallowed = Effect.gen(function* () {
  const [limiter, queue] = [yield* Limiter, yield* FairQueue]
  const hold = yield* limiter.reserve(resolved).pipe(Effect.catchTag("Unavailable", () => Effect.void))
  // @ts-expect-error swallowing Unavailable leaves void where evidence is required
  yield* queue.enter(hold, () => 0)
})

// @ts-expect-error a link is made from the link before it
seal.Limiter(key, { reservation, headroom, expectedTokens: 1, call })
// @ts-expect-error and with all that its gate has to say
seal.Discovery(key, asked)

// @ts-expect-error a new gate does not compile before a link carries its decision
export type NewGate = Complete<Gate | "Residency", Carried>

/** The last link has no follower; a link that nothing follows would be a gate that can be left out. */
type Followers = { readonly KeyStore: "Discovery"; readonly Limiter: "Queue"; readonly Queue: "Audit" }
// @ts-expect-error a new link does not compile before another one follows it
export type NewLink = Complete<Exclude<Link, "Audit">, Followers>

// @effect-diagnostics missingEffectError:off
// @ts-expect-error a database error has to become a GatewayError before it may reach an endpoint
export const leaky = endRequest(context, sqlFailure)

// @ts-expect-error an error without a response does not exist
toErrorResponse({ _tag: "SomethingNew" })

type Responses = { readonly [T in GatewayError["_tag"]]: number }
// @ts-expect-error a table of responses has to be complete
export const responses: Responses = { BadRequest: 400, Unauthorized: 401 }

// @ts-expect-error an outage matrix has to name every gate
export const outages: Record<Gate, Layer.Layer<never> | undefined> = {
  KeyStore: undefined,
  Limiter: undefined
}
