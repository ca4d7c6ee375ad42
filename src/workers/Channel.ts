/**
 * Questions and answers between the primary and one worker, over the IPC channel of Node. An answer that does not come in
 * time, or that is not what was asked for, is `ChannelDown`.
 */
import { Data, Effect, Option, Schema, type Scope } from "effect"
import type { Procedure } from "./protocol.ts"

export class ChannelDown extends Data.TaggedError("ChannelDown")<{ readonly reason: string }> {}

/** One end of an IPC channel. */
export interface Wire {
  /** Never throws: a message that cannot be sent is lost. */
  send(message: object): void
  /** Returns a function that stops listening. */
  listen(listener: (message: unknown) => void): () => void
}

export interface Channel {
  /** `timeoutMs`: default 2000 */
  ask<A, B>(procedure: Procedure<A, B>, input: A, timeoutMs?: number): Effect.Effect<B, ChannelDown>
  /** Sends without waiting for an answer. */
  tell<A>(procedure: Procedure<A, void>, input: A): void
  /** Answers what the other end asks. The last handler of a procedure counts. */
  answer<A, B>(procedure: Procedure<A, B>, handler: (input: A) => Effect.Effect<B, unknown>): void
}

const Message = Schema.Union([
  Schema.Struct({
    tollgate: Schema.Literal("ask"),
    id: Schema.Finite,
    name: Schema.String,
    input: Schema.Unknown
  }),
  Schema.Struct({
    tollgate: Schema.Literal("answer"),
    id: Schema.Finite,
    ok: Schema.Boolean,
    output: Schema.Unknown
  })
])
const decodeMessage = Schema.decodeUnknownOption(Message)

const defaultTimeoutMs = 2000

export const makeChannel = Effect.fnUntraced(function* (
  wire: Wire
): Effect.fn.Return<Channel, never, Scope.Scope> {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const handlers = new Map<string, (input: unknown) => Effect.Effect<unknown, unknown>>()
  const waiting = new Map<number, (outcome: Effect.Effect<unknown, ChannelDown>) => void>()
  let lastId = 0

  const send = (
    name: string,
    input: unknown,
    answered?: (outcome: Effect.Effect<unknown, ChannelDown>) => void
  ) => {
    lastId += 1
    const id = lastId
    if (answered !== undefined) waiting.set(id, answered)
    wire.send({ tollgate: "ask", id, name, input })
    return id
  }

  const handle = (id: number, name: string, input: unknown): void => {
    const handler = handlers.get(name)
    if (handler === undefined) return wire.send({ tollgate: "answer", id, ok: false, output: undefined })
    run(
      Effect.matchCause(handler(input), {
        onFailure: () => wire.send({ tollgate: "answer", id, ok: false, output: undefined }),
        onSuccess: (output) => wire.send({ tollgate: "answer", id, ok: true, output })
      })
    )
  }

  const receive = (raw: unknown): void => {
    const message = Option.getOrUndefined(decodeMessage(raw))
    if (message?.tollgate === "ask") return handle(message.id, message.name, message.input)
    if (message === undefined) return
    const resume = waiting.get(message.id)
    waiting.delete(message.id)
    resume?.(message.ok ? Effect.succeed(message.output) : new ChannelDown({ reason: "refused" }))
  }

  yield* Effect.acquireRelease(
    Effect.sync(() => wire.listen(receive)),
    (unlisten) => Effect.sync(unlisten)
  )

  return {
    ask: <A, B>({ name, output }: Procedure<A, B>, input: A, timeoutMs = defaultTimeoutMs) => {
      const decode = Schema.decodeUnknownEffect(output)
      return Effect.callback<unknown, ChannelDown>((resume) => {
        const id = send(name, input, resume)
        return Effect.sync(() => void waiting.delete(id))
      }).pipe(
        Effect.timeoutOrElse({
          duration: timeoutMs,
          orElse: () => Effect.fail(new ChannelDown({ reason: `no answer to ${name}` }))
        }),
        Effect.flatMap((found) =>
          Effect.mapError(decode(found), () => new ChannelDown({ reason: `nonsense from ${name}` }))
        )
      )
    },
    tell: ({ name }, input) => void send(name, input),
    answer: <A, B>({ input, name }: Procedure<A, B>, handler: (input: A) => Effect.Effect<B, unknown>) => {
      const decode = Schema.decodeUnknownEffect(input)
      handlers.set(name, (found) => Effect.flatMap(decode(found), handler))
    }
  }
})
