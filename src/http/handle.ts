/**
 * The way of one request to a model, for all surfaces. Each line of `handle` and `admit` is one gate. The comment above it
 * has the statuses of its refusals and the reason for its place. Gates that cost nothing come first, then those that hold
 * something, then the intent row, and the backend last.
 *
 * Each gate takes the evidence of the gate before it (`domain/Evidence.ts`), so no gate can be left out and the order
 * cannot be changed by mistake. `endRequest.ts` ends every request.
 */
import { Effect, Fiber, Option, Scope, Stream } from "effect"
import { answerBytesOf } from "../backend/answerBounds.ts"
import { AnswerMemory, uncounted } from "../backend/AnswerMemory.ts"
import { CircuitBreaker } from "../backend/CircuitBreaker.ts"
import type { Embeddings } from "../domain/Frame.ts"
import type { Asked, Evidence, Permit } from "../domain/Evidence.ts"
import type { JsonObject } from "../domain/Inference.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { makeAdmit } from "../request/admit.ts"
import { makeForward } from "../request/forward.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { makeAuthenticate } from "./authenticate.ts"
import type { Decode, Dialect, ObjectDialect } from "./dialect/Dialect.ts"
import { noContext, sealFor } from "./dialect/native/sealedContext.ts"
import type { Exchange } from "./Exchange.ts"
import { makeSpans } from "./gateSpans.ts"
import { makeReadRequest, type RequestOptions } from "./readRequest.ts"
import { foldedReply, objectReply } from "./replies.ts"
import { RequestBodies } from "./server/RequestBodies.ts"

export const makeHandle = Effect.fnUntraced(function* (options: RequestOptions) {
  const bodies = yield* RequestBodies
  const breaker = yield* CircuitBreaker
  const contexts = yield* ContextSecret
  const discovery = yield* Discovery
  const memory = yield* AnswerMemory
  const gates = yield* makeAdmit
  const backend = yield* makeForward
  const { call, gate } = yield* makeSpans
  const patienceMs = options.answerPatienceMs ?? 10_000
  const authenticate = gate("authenticate", yield* makeAuthenticate)
  const readRequest = gate("read request", yield* makeReadRequest(options))
  const resolveModel = gate("resolve model", discovery.resolve)
  const reserve = gate("reserve", gates.reserve)
  const waitForPlace = gate("wait for place", gates.waitForPlace)
  const checkBreaker = gate("check breaker", breaker.check)
  const openIntent = gate("open intent", gates.openIntent)
  const [forward, embed, show] = [
    call("call model server", backend.forward),
    call("call model server", backend.embed),
    call("call model server", backend.show)
  ]

  const admit = Effect.fnUntraced(function* (
    context: RequestContext,
    key: Evidence<"KeyStore">,
    asked: Asked
  ) {
    context.asked = asked.request
    // 403, 400. Before the reservation: a request for a model that its key may not use consumes nothing.
    const model = yield* resolveModel(key, asked)
    context.resolved = model.facts
    // 429, 503. Limits and budgets together, so that a request holds all of its claims or none.
    const reserved = yield* reserve(context, model)
    // 429, 503. After the reservation: no request waits that would be refused afterwards.
    const queued = yield* waitForPlace(context, reserved)
    // 502. Before the intent: a refusal by an open breaker needs no intent row. The breaker decides again at the call.
    yield* checkBreaker(key.facts.caller)
    // 503. Last, because the row charges the request if this process crashes. No row, no call.
    return yield* openIntent(context, queued)
  })

  const handle = Effect.fnUntraced(function* (exchange: Exchange, decode: Decode) {
    const { context, incoming } = exchange
    // 401, 429. First: nothing is read for an unknown sender.
    const key = yield* authenticate(context, incoming)
    const { caller } = key.facts
    // 429. A key that does not read its answers gets no more of them.
    yield* memory.checkRoom(caller)
    // 429, 503. Memory for the body until the request is admitted.
    return yield* bodies.withShare(caller, (share) =>
      // 413, 400. Before the gates that hold something.
      Effect.flatMap(readRequest(exchange, key, share, decode), (asked) => admit(context, key, asked))
    )
  })

  /** The memory of an answer. A client that does not read it may be cut. */
  const shareOf = ({ incoming }: Exchange, { facts: { call, caller } }: Permit) =>
    memory.share({
      caller,
      maxBytes: answerBytesOf(call),
      cut: Effect.sync(() => incoming.socket.destroy())
    })

  /** Chat and generate. */
  const generate = Effect.fnUntraced(function* (exchange: Exchange, dialect: Dialect) {
    const { context } = exchange
    const permit = yield* handle(exchange, dialect.decode)
    const share = yield* shareOf(exchange, permit)
    const { caller, model, request } = permit.facts
    // Only generate has a context.
    const seal =
      request.kind === "generate"
        ? yield* sealFor(contexts, { keyId: caller.keyId, digest: model.digest })
        : noContext
    const encoder = dialect.encoder(request, {
      requestId: context.arrival.requestId,
      seal,
      ...(context.route === undefined ? {} : { errorBody: context.route.surface.errorBody })
    })
    // 502, 403, 400. Succeeds with the first frame, so that an earlier failure still has a status.
    const calling = forward(context, permit, share)
    if (!request.stream) return yield* foldedReply(yield* calling, encoder, share)
    const reply = { _tag: "Stream", contentType: dialect.contentType, encoder, share } as const
    if (encoder.waiting === undefined) return { ...reply, answer: yield* calling }
    // The client is told that it waits. From then on, a failure has no status. Scopes close in reverse order, and the fiber must be
    // interrupted before its call is closed: otherwise the closed call looks like a failed model server.
    const held = yield* Scope.fork(yield* Effect.scope)
    const call = yield* Effect.forkScoped(Scope.provide(calling, held))
    const answer = yield* Effect.timeoutOption(Fiber.join(call), patienceMs)
    return Option.isSome(answer)
      ? { ...reply, answer: answer.value }
      : { ...reply, answer: Stream.unwrap(Fiber.join(call)), begins: Fiber.await(call) }
  })

  /** The tokens of a prompt, by the gateway's own estimate. The backend is not called. */
  const count = Effect.fnUntraced(function* (exchange: Exchange, dialect: ObjectDialect<void>) {
    const permit = yield* handle(exchange, dialect.decode)
    return objectReply(dialect.encode(permit.spend().request), uncounted)
  })

  const embeddings = Effect.fnUntraced(function* (exchange: Exchange, dialect: ObjectDialect<Embeddings>) {
    const permit = yield* handle(exchange, dialect.decode)
    const share = yield* shareOf(exchange, permit)
    const vectors = yield* embed(exchange.context, permit, share)
    return objectReply(dialect.encode(permit.facts.request, vectors), share)
  })

  const description = Effect.fnUntraced(function* (exchange: Exchange, dialect: ObjectDialect<JsonObject>) {
    const permit = yield* handle(exchange, dialect.decode)
    const share = yield* shareOf(exchange, permit)
    const shown = yield* show(exchange.context, permit, share)
    const { request, window } = permit.facts
    // The window of a request, which may be smaller than that of the model in its metadata.
    const told = window === undefined ? shown : { ...shown, context_length: window }
    return objectReply(dialect.encode(request, told), share)
  })

  return { count, generate, embed: embeddings, show: description }
})
