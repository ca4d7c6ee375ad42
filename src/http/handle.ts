/**
 * The way of one request to a model, for both surfaces. Each line of `handle` and `admit` is one gate. The comment above it
 * has the statuses of its refusals and the reason for its place. Gates that cost nothing come first, then those that hold
 * something, then the intent row, and the backend last.
 *
 * Each gate takes the evidence of the gate before it (`domain/Evidence.ts`), so no gate can be left out and the order
 * cannot be changed by mistake. `endRequest.ts` ends every request.
 */
import { Effect, type Scope } from "effect"
import { AnswerMemory } from "../backend/AnswerMemory.ts"
import { CircuitBreaker } from "../backend/CircuitBreaker.ts"
import type { Embeddings } from "../domain/Embeddings.ts"
import type { GatewayError } from "../domain/Errors.ts"
import type { Asked, Evidence, Permit } from "../domain/Evidence.ts"
import type { JsonObject } from "../domain/Inference.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { makeForward } from "../request/forward.ts"
import { makeOpenIntent } from "../request/openIntent.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { makeReserve } from "../request/reserve.ts"
import { makeWaitForPlace } from "../request/waitForPlace.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { makeAuthenticate } from "./authenticate.ts"
import type { Decode, Dialect, ObjectDialect } from "./dialect/Dialect.ts"
import { noContext, sealFor } from "./dialect/native/contexts.ts"
import type { Exchange } from "./Exchange.ts"
import { makeSpans } from "./gateSpans.ts"
import { makeReadRequest, type RequestOptions } from "./readRequest.ts"
import { makeReplies } from "./replies.ts"
import { RequestBodies, type Share } from "./server/RequestBodies.ts"

export const makeHandle = Effect.fnUntraced(function* (options: RequestOptions) {
  const [bodies, breaker, contexts, discovery, memory] = [
    yield* RequestBodies,
    yield* CircuitBreaker,
    yield* ContextSecret,
    yield* Discovery,
    yield* AnswerMemory
  ]
  const [backend, replies] = [yield* makeForward, yield* makeReplies]
  const { call, frames, gate, inlineGate } = yield* makeSpans
  const authenticate = inlineGate("authenticate", yield* makeAuthenticate)
  const readRequest = inlineGate("read request", yield* makeReadRequest(options))
  const resolveModel = gate("resolve model", discovery.resolve)
  const reserve = gate("reserve", yield* makeReserve)
  const waitForPlace = gate("wait for place", yield* makeWaitForPlace)
  const checkBreaker = gate("check breaker", breaker.check)
  const openIntent = inlineGate("open intent", yield* makeOpenIntent)
  const forward = frames("call model server", backend.forward)
  const [callEmbed, callShow] = [
    call("call model server", backend.embed),
    call("call model server", backend.show)
  ]

  const admit = function* (
    context: RequestContext,
    key: Evidence<"KeyStore">,
    asked: Asked
  ): Effect.fn.Return<Permit, GatewayError, Scope.Scope> {
    context.ask(asked.request)
    // 403, 400. Before the reservation: a request for a model that its key may not use consumes nothing.
    const model = yield* resolveModel(key, asked)
    context.resolve(model.facts)
    // 429, 503. Limits and budgets together, so that a request holds all of its claims or none.
    const reserved = yield* reserve(context, model)
    // 429, 503. After the reservation: no request waits that would be refused afterwards.
    const queued = yield* waitForPlace(context, reserved)
    // 502. Before the intent: a refusal by an open breaker needs no intent row. The breaker decides again at the call.
    yield* checkBreaker(key.facts.caller)
    // 503. Last, because the row charges the request if this process crashes. No row, no call.
    return yield* openIntent(context, queued)
  }

  /** The part of the way for which memory is held. */
  const readAndAdmit = Effect.fnUntraced(function* (
    exchange: Exchange,
    key: Evidence<"KeyStore">,
    share: Share,
    decode: Decode
  ): Effect.fn.Return<Permit, GatewayError, Scope.Scope> {
    // 413, 400. Before the gates that hold something.
    const asked = yield* readRequest(exchange, key, share, decode)
    return yield* admit(exchange.context, key, asked)
  })

  const handle = function* (
    exchange: Exchange,
    decode: Decode
  ): Effect.fn.Return<Permit, GatewayError, Scope.Scope> {
    const { context, incoming } = exchange
    // 401, 429. First: nothing is read for an unknown sender.
    const key = yield* authenticate(context, incoming)
    const { caller } = key.facts
    // 429. A key that does not read its answers gets no more of them.
    yield* Effect.fromResult(memory.checkRoom(caller))
    // 429, 503. Memory for the body until the request is admitted.
    return yield* bodies.withShare(caller, (share) => readAndAdmit(exchange, key, share, decode))
  }

  /** Chat and generate. */
  const generate = Effect.fnUntraced(function* (exchange: Exchange, dialect: Dialect) {
    const permit = yield* handle(exchange, dialect.decode)
    // 502, 403, 400. Succeeds with the first frame, so that an earlier failure still has a status.
    const answer = yield* forward(exchange.context, permit)
    const { caller, model, request } = permit.facts
    // Only generate has a context.
    const seal =
      request.kind === "generate"
        ? yield* sealFor(contexts, { keyId: caller.keyId, digest: model.digest })
        : noContext
    const encoder = dialect.encoder(request, seal)
    return request.stream
      ? yield* replies.stream(exchange, answer, dialect, encoder)
      : yield* replies.folded(exchange, answer, encoder)
  })

  const embed = Effect.fnUntraced(function* (exchange: Exchange, dialect: ObjectDialect<Embeddings>) {
    const permit = yield* handle(exchange, dialect.decode)
    const embeddings = yield* callEmbed(exchange.context, permit)
    const { request } = permit.facts
    const parts = dialect.encode(request, embeddings)
    // Base64 is a copy, and the vectors are not needed while it is sent.
    const isCopied = request.base64 === true
    if (isCopied) embeddings.release?.()
    return yield* replies.object(exchange, parts, isCopied ? undefined : embeddings.release)
  })

  const show = Effect.fnUntraced(function* (exchange: Exchange, dialect: ObjectDialect<JsonObject>) {
    const permit = yield* handle(exchange, dialect.decode)
    const description = yield* callShow(exchange.context, permit)
    return yield* replies.object(exchange, dialect.encode(permit.facts.request, description))
  })

  return { generate, embed, show }
})
