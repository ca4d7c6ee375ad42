/**
 * The memory for answers (`AnswerAccount.ts` has the rules). Every call to the backend and every answer to a client takes its
 * memory here, in the share of its request, which ends with the request's Scope.
 */
import { Context, Effect, Layer, Scope } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { RateLimited, Unavailable } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { AnswerAccount } from "./AnswerAccount.ts"

export interface AnswerMemoryOptions {
  /** `UNREAD_ANSWERS_MAX_BYTES` */
  readonly mostBytes: number
}

/** One answer, as far as its client has not read it. */
export interface Unread {
  /** From now on `bytes` are kept for the client; to be called again whenever it has taken some. 0: none are. */
  hold(bytes: number): void
}

/** The memory of one request's answer. */
export interface AnswerShare extends Unread {
  /** Takes memory for `bytes` in all of what is collected, if there is any now. Fewer bytes than before are given back. */
  tryCollect(bytes: number): boolean
  /** The same, as soon as there is memory. Fails when there is none within `mostWaitMs`. */
  collect(bytes: number): Effect.Effect<void, Unavailable>
  /** The answer is whole: `bytes` are kept for the client, and nothing else. */
  deliver(bytes: number): void
  /** `cut` ends the connection to the client when the memory is needed for others. */
  onCut(cut: () => void): void
}

/** How long an answer may wait for memory. The first that waits has it in half that time (`AnswerAccount.ts`). */
export const mostWaitMs = 10_000
const lookMs = 250

const crowded = new Unavailable({
  gate: "Limiter",
  retryAfterS: 1,
  crowded: true,
  cause: "no memory for another answer"
})

/** For answers to the gateway's own questions, which are few at a time and have a bound each. */
export const uncounted: AnswerShare = {
  tryCollect: () => true,
  collect: () => Effect.void,
  deliver: () => undefined,
  hold: () => undefined,
  onCut: () => undefined
}

const shareOf = (account: AnswerAccount, key: string): { readonly share: AnswerShare; close(): void } => {
  const own = account.open(key)
  const wait = (bytes: number): Effect.Effect<void, Unavailable> =>
    Effect.callback<void>((resume) => {
      // Not at once: whoever gives the memory back may be in the middle of undici's parser, which takes no other call.
      const leave = account.wait(own, bytes, () => queueMicrotask(() => resume(Effect.void)))
      return Effect.sync(leave)
    }).pipe(
      Effect.raceFirst(
        Effect.forever(
          Effect.andThen(
            Effect.sleep(lookMs),
            Effect.sync(() => account.look())
          )
        )
      ),
      Effect.timeoutOrElse({ duration: mostWaitMs, orElse: () => Effect.fail(crowded) })
    )
  return {
    share: {
      tryCollect: (bytes) => account.tryCollect(own, bytes),
      collect: (bytes) => Effect.suspend(() => (account.tryCollect(own, bytes) ? Effect.void : wait(bytes))),
      deliver: (bytes) => account.deliver(own, bytes),
      hold: (bytes) => account.hold(own, bytes),
      onCut: (cut) => void (own.cut = cut)
    },
    close: () => account.close(own)
  }
}

export class AnswerMemory extends Context.Service<
  AnswerMemory,
  {
    /** The share of the request whose Scope this is: the same one for all who ask in it. It ends with the Scope. */
    share(caller: Caller | undefined): Effect.Effect<AnswerShare, never, Scope.Scope>
    /** Fails when too much waits unread for this caller already. Nothing is consumed. */
    room(caller: Caller): Effect.Effect<void, RateLimited>
    /** of all answers */
    readonly bytes: () => number
    /** answers that were cut since the start */
    readonly cuts: () => number
    /** answers that wait for memory */
    readonly waiting: () => number
  }
>()("tollgate/backend/AnswerMemory") {
  static readonly layer = (options: AnswerMemoryOptions): Layer.Layer<AnswerMemory> =>
    Layer.effect(
      AnswerMemory,
      Effect.gen(function* () {
        const account = new AnswerAccount(options.mostBytes, yield* makeMonotonicMs)
        const shares = new WeakMap<Scope.Scope, AnswerShare>()
        return {
          bytes: () => account.bytes,
          cuts: () => account.cuts,
          waiting: () => account.waiting,
          share: (caller) =>
            Effect.flatMap(Effect.scope, (scope) => {
              const known = shares.get(scope)
              if (known !== undefined) return Effect.succeed(known)
              const { close, share } = shareOf(account, caller?.keyId ?? "")
              shares.set(scope, share)
              return Effect.as(Scope.addFinalizer(scope, Effect.sync(close)), share)
            }),
          room: ({ keyId, limits }) =>
            account.isFull(keyId)
              ? new RateLimited({ limit: "concurrency", value: limits.concurrent, retryAfterS: 1 })
              : Effect.void
        }
      })
    )
}
