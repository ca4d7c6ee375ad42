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
import { MemoryLedger, type RequestShare } from "../memory/MemoryLedger.ts"
import { CircuitBreaker } from "../backend/CircuitBreaker.ts"
import type { Embeddings } from "../domain/Frame.ts"
import { BadRequest, type GatewayError } from "../domain/Errors.ts"
import type { Permit } from "../domain/Evidence.ts"
import type { JsonObject } from "../domain/Inference.ts"
import { bytesOf } from "../domain/prepare.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { makeAdmit } from "../request/admit.ts"
import { transcriptBytes } from "../promptlog/transcript.ts"
import { makeForward } from "../request/forward.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { makeAuthenticate } from "./authenticate.ts"
import type { Decode, Dialect, ObjectDialect } from "./dialect/Dialect.ts"
import { noContext, sealFor } from "./dialect/native/sealedContext.ts"
import type { Exchange } from "./Exchange.ts"
import { makeSpans } from "./gateSpans.ts"
import { makeReadRequest, type RequestOptions } from "./readRequest.ts"
import { foldedReply, objectReply } from "./replies.ts"
import type { Reply } from "./Reply.ts"
import { ClientTimeouts } from "./server/ClientTimeouts.ts"

/** What is kept of a body has at most three times its bytes, and these. Only numbers such as `1e20` have more when they are written. */
const expansion = 3
const spareBytes = 65_536

export const makeHandle = Effect.fnUntraced(function* (options: RequestOptions) {
  const breaker = yield* CircuitBreaker
  const contexts = yield* ContextSecret
  const discovery = yield* Discovery
  const memory = yield* MemoryLedger
  const gates = yield* makeAdmit
  const backend = yield* makeForward
  const { call, gate } = yield* makeSpans
  const { silence } = yield* ClientTimeouts
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

  /** Passes a request through all gates, and makes its reply with the permit. */
  const handle = Effect.fnUntraced(function* (
    exchange: Exchange,
    decode: Decode,
    replyWith: (permit: Permit, share: RequestShare) => Effect.Effect<Reply, GatewayError, Scope.Scope>
  ) {
    const { context, incoming } = exchange
    // 401, 429. First: nothing is read for an unknown sender.
    const key = yield* authenticate(context, incoming)
    const { caller } = key.facts
    // 429, 503. Memory for the request, before anything of it is kept. A client that does not read its answer may be cut.
    const share = yield* Effect.fromResult(
      memory.share(context, { caller, cut: () => incoming.socket.destroy() })
    )
    // 413, 400, 403. Before the gates that hold something. What the body was parsed to is not kept.
    const model = yield* resolveModel(key, yield* readRequest(exchange, key, share, decode))
    context.cost.facts = model.facts
    const bytes = bytesOf(model.facts.request)
    if (bytes > expansion * context.said.bodyBytes + spareBytes)
      return yield* new BadRequest({ detail: "body: its numbers are too long when they are written out" })
    const refusal = share.grow(bytes + (caller.promptLogDays === undefined ? 0 : transcriptBytes))
    if (refusal !== undefined) return yield* refusal
    // 429, 503. Limits and budgets together, so that a request holds all of its claims or none.
    const reserved = yield* reserve(context, model)
    // 429, 503. After the reservation: no request waits that would be refused afterwards.
    const queued = yield* waitForPlace(context, reserved)
    // 502. Before the intent: a refusal by an open breaker needs no intent row. The breaker decides again at the call.
    yield* checkBreaker(caller)
    // 503. Last, because the row charges the request if this process crashes. No row, no call.
    const permit = yield* openIntent(context, queued)
    share.expect(answerBytesOf(permit.facts.call))
    return yield* replyWith(permit, share)
  })

  /** Chat and generate. */
  const generate = (exchange: Exchange, dialect: Dialect) => {
    const { context, scope } = exchange
    return handle(exchange, dialect.decode, (permit, share) => {
      const { caller, model, request } = permit.facts
      // Only generate has a context.
      const seal =
        request.kind === "generate"
          ? sealFor(contexts, { keyId: caller.keyId, digest: model.digest })
          : Effect.succeed(noContext)
      return Effect.flatMapEager(seal, (seal): Effect.Effect<Reply, GatewayError> => {
        const encoder = dialect.encoder(request, {
          requestId: context.arrival.requestId,
          seal,
          ...(context.route === undefined ? {} : { errorBody: context.route.surface.errorBody })
        })
        // 502, 403, 400. Succeeds with the first frame, so that an earlier failure still has a status.
        if (!request.stream)
          return Effect.flatMap(forward(context, permit, share, scope), (answer) =>
            foldedReply(answer, encoder, { scope, share })
          )
        const { contentType } = dialect
        const reply = { _tag: "Stream", contentType, encoder, share } as const
        return encoder.waiting === undefined
          ? Effect.map(forward(context, permit, share, scope), (answer) => ({ ...reply, answer }))
          : Effect.map(begunInSilence(exchange, permit, share), (begun) => ({ ...reply, ...begun }))
      })
    })
  }

  /**
   * An answer whose client is told that it waits. From then on, a failure has no status. Scopes close in reverse order, and the fiber
   * must be interrupted before its call is closed: otherwise the closed call looks like a failed model server.
   */
  const begunInSilence = ({ context, scope }: Exchange, permit: Permit, share: RequestShare) =>
    Effect.flatMap(Effect.forkIn(forward(context, permit, share, Scope.forkUnsafe(scope)), scope), (call) =>
      Effect.map(Effect.timeoutOption(Fiber.join(call), silence), (begun) =>
        Option.isSome(begun)
          ? { answer: begun.value }
          : { answer: Stream.unwrap(Fiber.join(call)), isLate: true }
      )
    )

  /** The tokens of a prompt, by the gateway's own estimate. The backend is not called. */
  const count = (exchange: Exchange, dialect: ObjectDialect<void>) =>
    handle(exchange, dialect.decode, (permit, share) =>
      Effect.sync(() => objectReply(dialect.encode(permit.spend().request), share))
    )

  const embeddings = (exchange: Exchange, dialect: ObjectDialect<Embeddings>) =>
    handle(exchange, dialect.decode, (permit, share) =>
      Effect.map(embed(exchange.context, permit, share), (vectors) =>
        objectReply(dialect.encode(permit.facts.request, vectors), share)
      )
    )

  const description = (exchange: Exchange, dialect: ObjectDialect<JsonObject>) =>
    handle(exchange, dialect.decode, (permit, share) => {
      const { request, window } = permit.facts
      return Effect.map(show(exchange.context, permit, share), (shown) => {
        // The window of a request, which may be smaller than that of the model in its metadata.
        const told = window === undefined ? shown : { ...shown, context_length: window }
        return objectReply(dialect.encode(request, told), share)
      })
    })

  return { count, generate, embed: embeddings, show: description }
})
