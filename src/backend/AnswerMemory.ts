/**
 * Bounds the memory of answers (rules: `AnswerAccount.ts`). Each request has one share, which ends with its Scope. Calls
 * to the backend and answers to the client take their memory from it.
 */
import { Context, Effect, Layer, Result, Scope } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { RateLimited, Unavailable } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { AnswerAccount } from "./AnswerAccount.ts"

export interface AnswerMemoryOptions {
  /** `UNREAD_ANSWERS_MAX_BYTES` */
  readonly maxBytes: number
  /** for tests; default `maxWaitMs` */
  readonly maxWaitMs?: number
}

/** The unread bytes of one answer. */
export interface Unread {
  /** Sets the bytes that wait for the client. Called again whenever the client has taken some; 0 when none wait. */
  hold(bytes: number): void
}

/** The memory of one request's answer. */
export interface AnswerShare extends Unread {
  /** Sets what is collected to `bytes` in total. Returns false and changes nothing when there is no memory for it now. */
  tryCollect(bytes: number): boolean
  /** The same, but waits for memory. Fails after `maxWaitMs`. */
  collect(bytes: number): Effect.Effect<void, Unavailable>
  /** The answer is complete: `bytes` wait for the client, and nothing more is collected. */
  deliver(bytes: number): void
  /** Sets the function that ends the connection to the client when its memory is needed for others. */
  onCut(cut: () => void): void
  /** Calls `end` at the end of the request, before its memory is given back. */
  atEnd(end: () => void): void
}

/** How long an answer may wait for memory. The one that waits longest gets it within half that time (`AnswerAccount.ts`). */
export const maxWaitMs = 10_000
const checkMs = 250

const crowded = new Unavailable({
  gate: "Limiter",
  retryAfterS: 1,
  crowded: true,
  cause: "no memory for another answer"
})

/** The share of the gateway's own calls. They are few at a time, and each has a bound. It has no end. */
export const uncounted: AnswerShare = {
  tryCollect: () => true,
  collect: () => Effect.void,
  deliver: () => undefined,
  hold: () => undefined,
  onCut: () => undefined,
  atEnd: () => undefined
}

/** The share of one request. Its class has its functions: a closure for each would be made for each request. */
class OwnShare implements AnswerShare {
  readonly #account: AnswerAccount
  readonly #own: ReturnType<AnswerAccount["open"]>
  readonly #waitMs: number
  readonly #ends: Array<() => void> = []

  constructor(account: AnswerAccount, key: string, waitMs: number) {
    this.#account = account
    this.#own = account.open(key)
    this.#waitMs = waitMs
  }

  tryCollect(bytes: number): boolean {
    return this.#account.tryCollect(this.#own, bytes)
  }

  collect(bytes: number): Effect.Effect<void, Unavailable> {
    return Effect.suspend(() => (this.tryCollect(bytes) ? Effect.void : this.#wait(bytes)))
  }

  deliver(bytes: number): void {
    this.#account.deliver(this.#own, bytes)
  }

  hold(bytes: number): void {
    this.#account.hold(this.#own, bytes)
  }

  onCut(cut: () => void): void {
    this.#own.cut = cut
  }

  atEnd(end: () => void): void {
    this.#ends.push(end)
  }

  /** Calls what waits for the end, and gives the memory back. */
  close(): void {
    try {
      for (const end of this.#ends) end()
    } finally {
      this.#account.close(this.#own)
    }
  }

  #wait(bytes: number): Effect.Effect<void, Unavailable> {
    const account = this.#account
    return Effect.callback<void>((resume) => {
      // In a microtask: memory may be given back inside undici's parser, which allows no other call meanwhile.
      const leave = account.wait(this.#own, bytes, () => queueMicrotask(() => resume(Effect.void)))
      return Effect.sync(leave)
    }).pipe(
      Effect.raceFirst(
        Effect.forever(
          Effect.andThen(
            Effect.sleep(checkMs),
            Effect.sync(() => account.admitWaiting())
          )
        )
      ),
      Effect.timeoutOrElse({ duration: this.#waitMs, orElse: () => Effect.fail(crowded) })
    )
  }
}

export class AnswerMemory extends Context.Service<
  AnswerMemory,
  {
    /** The share of the current Scope. It is made at the first call and ends with the Scope. */
    share(caller: Caller | undefined): Effect.Effect<AnswerShare, never, Scope.Scope>
    /** A failure when the caller has too many unread bytes. Takes nothing. */
    checkRoom(caller: Caller): Result.Result<void, RateLimited>
    /** bytes of all answers */
    readonly bytes: () => number
    /** number of answers cut since the start */
    readonly cuts: () => number
    /** number of answers that wait for memory */
    readonly waiting: () => number
  }
>()("tollgate/backend/AnswerMemory") {
  static readonly layer = (options: AnswerMemoryOptions): Layer.Layer<AnswerMemory> =>
    Layer.effect(
      AnswerMemory,
      Effect.gen(function* () {
        const account = new AnswerAccount(options.maxBytes, yield* makeMonotonicMs)
        const shares = new WeakMap<Scope.Scope, AnswerShare>()
        return {
          bytes: () => account.bytes,
          cuts: () => account.cuts,
          waiting: () => account.waiting,
          share: (caller) =>
            Effect.withFiber<AnswerShare, never, Scope.Scope>(({ context }) => {
              const scope = Context.getUnsafe(context, Scope.Scope)
              const existing = shares.get(scope)
              if (existing !== undefined) return Effect.succeed(existing)
              const share = new OwnShare(account, caller?.keyId ?? "", options.maxWaitMs ?? maxWaitMs)
              shares.set(scope, share)
              const end = () => {
                // Without this the request would survive one scavenge: that keeps every value of an old WeakMap.
                shares.delete(scope)
                share.close()
                return Effect.void
              }
              return Effect.map(Scope.addFinalizerExit(scope, end), () => share)
            }),
          checkRoom: ({ keyId, limits }) =>
            account.isFull(keyId)
              ? Result.fail(
                  new RateLimited({ limit: "concurrency", value: limits.concurrent, retryAfterS: 1 })
                )
              : Result.void
        }
      })
    )
}
