/**
 * Bounds the memory of answers, from the first byte of the backend until the client has the last one. The first `freeBytes`
 * of each answer are not counted, so that small answers never wait.
 *
 * - A tenant holds at most as much as is left for all others, and a key at most as much as is left of that for the other keys
 *   of its tenant. One tenant alone gets half, two get a third each, and something is always left.
 * - An answer that is *collected* and has no room waits, and its connection to the backend is not read. Of all that wait, the
 *   one with the least still to come goes on beyond the bounds, one at a time, so that none waits for ever.
 * - An answer that is *unread* never waits, because it comes at the speed of the backend. When its tenant holds too much, the
 *   slowest reader of that tenant is cut: the one with the largest product of its bytes and the time since it took some. The
 *   only reader of a tenant is cut when all answers take more than `maxBytes`.
 * - A key that holds too much unread starts no further request.
 *
 * So all answers take at most `maxBytes` and one answer more, which may not be larger than `maxBytes` itself. While other
 * tenants hold answers too, a reader that takes nothing is cut when its tenant holds more than what is left.
 */
import { Context, Deferred, Effect, Layer, Scope } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { RateLimited, Unavailable } from "../domain/Errors.ts"
import { FairShare } from "../infra/FairShare.ts"
import { makeMonotonicMs } from "../infra/time.ts"

/** Bytes of each answer that are not counted. Its connections have buffers of this size anyway. */
export const freeBytes = 65_536

/** How long an answer may wait for memory. */
const maxWaitMs = 10_000

export interface AnswerMemoryOptions {
  /** `UNREAD_ANSWERS_MAX_BYTES` */
  readonly maxBytes: number
  /** for tests; default 10 seconds */
  readonly maxWaitMs?: number
}

/** The memory of one request's answer. */
export interface AnswerShare {
  /** Sets what is collected to `bytes` in total, when there is memory for it. Fails after `maxWaitMs`. */
  collect(bytes: number): Effect.Effect<void, Unavailable>
  /** Sets the bytes that wait for the client. From here on nothing is collected. */
  hold(bytes: number): Effect.Effect<void>
}

export interface ShareOptions {
  readonly caller: Pick<Caller, "keyId" | "tenantId">
  /** the most that the answer may have */
  readonly maxBytes: number
  /** Ends the connection of the client, because its memory is needed for others. */
  readonly cut: Effect.Effect<void>
}

/** The memory of the gateway's own calls. They are few at a time, and each has a bound. */
export const uncounted: AnswerShare = { collect: () => Effect.void, hold: () => Effect.void }

interface Answer extends ShareOptions {
  collected: number
  unread: number
  /** when its client last took bytes, in monotonic ms */
  since: number
}

/** An answer that waits until it may have `bytes` in total. */
interface Waiter {
  readonly answer: Answer
  readonly bytes: number
  readonly turn: Deferred.Deferred<void>
}

const counted = (bytes: number): number => Math.max(0, bytes - freeBytes)

const make = Effect.fnUntraced(function* (options: AnswerMemoryOptions) {
  const nowMs = yield* makeMonotonicMs
  const shares = new FairShare(options.maxBytes)
  const unreadAnswers = new Set<Answer>()
  const waiters = new Set<Waiter>()
  /** the answer that may go beyond the bounds */
  let first: Answer | undefined
  let cuts = 0

  const change = (answer: Answer, collected: number, unread: number): void => {
    shares.take(answer.caller, collected + unread - answer.collected - answer.unread)
    answer.collected = collected
    answer.unread = unread
    if (unread === 0) unreadAnswers.delete(answer)
    else unreadAnswers.add(answer)
  }

  const tryCollect = (answer: Answer, bytes: number): boolean => {
    const more = bytes - answer.collected
    if (more > 0 && answer !== first && !shares.fits(answer.caller, more)) return false
    change(answer, bytes, answer.unread)
    return true
  }

  const remaining = ({ answer }: Waiter): number => answer.maxBytes - answer.collected

  /** Lets the answers go on that have room now, and one more: that with the least still to come. */
  const admitWaiting = Effect.suspend(() => {
    const order = [...waiters].sort((one, other) => remaining(one) - remaining(other))
    if (first === undefined) first = order[0]?.answer
    const admitted = order.filter(({ answer, bytes }) => tryCollect(answer, bytes))
    return Effect.forEach(admitted, ({ turn }) => Deferred.succeed(turn, undefined), { discard: true })
  })

  const collect = Effect.fnUntraced(function* (answer: Answer, bytes: number) {
    if (bytes > options.maxBytes) return yield* crowded
    const gives = bytes < answer.collected && waiters.size > 0
    if (tryCollect(answer, bytes)) return gives ? yield* admitWaiting : undefined
    const waiter: Waiter = { answer, bytes, turn: yield* Deferred.make<void>() }
    yield* Effect.acquireUseRelease(
      Effect.sync(() => waiters.add(waiter)),
      () => Effect.andThen(admitWaiting, Deferred.await(waiter.turn)),
      () => Effect.sync(() => waiters.delete(waiter))
    ).pipe(Effect.timeoutOrElse({ duration: options.maxWaitMs ?? maxWaitMs, orElse: () => crowded }))
  })

  /** The slowest reader of those that `isOf` selects, unless it is the only one and there is room for it. */
  const slowest = (isOf: (answer: Answer) => boolean): Answer | undefined => {
    const [now, found] = [nowMs(), [...unreadAnswers].filter(isOf)]
    const cost = ({ since, unread }: Answer) => unread * (now - since + 1)
    if (found.length < 2 && shares.total <= options.maxBytes) return undefined
    return found.toSorted((one, other) => cost(other) - cost(one))[0]
  }

  /** Cuts readers until the unread answers of `caller` fit. */
  const cutSlowest = ({ caller }: Answer): Effect.Effect<void> =>
    Effect.suspend(() => {
      const cut: Array<Answer> = []
      for (;;) {
        const isOf = !shares.tenantFits(caller)
          ? ({ caller: other }: Answer) => other.tenantId === caller.tenantId
          : ({ caller: other }: Answer) => other.keyId === caller.keyId
        const answer = shares.fits(caller) ? undefined : slowest(isOf)
        if (answer === undefined) break
        change(answer, answer.collected, 0)
        cut.push(answer)
      }
      cuts += cut.length
      return Effect.forEach(cut, (answer) => answer.cut, { discard: true })
    })

  const hold = (answer: Answer, bytes: number): Effect.Effect<void> =>
    Effect.suspend(() => {
      const unread = counted(bytes)
      const wasFirst = first === answer
      if (unread === answer.unread && answer.collected === 0 && !wasFirst) return Effect.void
      if (wasFirst) first = undefined
      if (unread < answer.unread || answer.unread === 0) answer.since = nowMs()
      const grows = unread > answer.unread
      change(answer, 0, unread)
      return Effect.andThen(
        grows ? cutSlowest(answer) : Effect.void,
        waiters.size === 0 ? Effect.void : admitWaiting
      )
    })

  return {
    /** The memory of an answer, which is given back when the Scope closes. */
    share: Effect.fnUntraced(function* (shareOptions: ShareOptions) {
      const answer: Answer = { ...shareOptions, collected: 0, unread: 0, since: 0 }
      yield* Scope.addFinalizer(yield* Effect.scope, hold(answer, 0))
      const share: AnswerShare = {
        collect: (bytes) =>
          Effect.suspend(() =>
            counted(bytes) === answer.collected ? Effect.void : collect(answer, counted(bytes))
          ),
        hold: (bytes) => hold(answer, bytes)
      }
      return share
    }),
    /** Fails when the caller has too many unread bytes. Takes nothing. */
    checkRoom: (caller: Caller) =>
      Effect.suspend(() => {
        const hasUnread =
          unreadAnswers.size > 0 && [...unreadAnswers].some((one) => one.caller.keyId === caller.keyId)
        return hasUnread && !shares.fits(caller)
          ? new RateLimited({ limit: "concurrency", value: caller.limits.concurrent, retryAfterS: 1 })
          : Effect.void
      }),
    /** bytes of all answers */
    bytes: Effect.sync(() => shares.total),
    /** number of answers cut since the start */
    cuts: Effect.sync(() => cuts),
    /** number of answers that wait for memory */
    waiting: Effect.sync(() => waiters.size)
  }
})

export class AnswerMemory extends Context.Service<AnswerMemory>()("tollgate/backend/AnswerMemory", { make }) {
  static readonly layer = (options: AnswerMemoryOptions): Layer.Layer<AnswerMemory> =>
    Layer.effect(AnswerMemory, make(options))
}

const crowded = Effect.suspend(
  () =>
    new Unavailable({
      gate: "Limiter",
      retryAfterS: 1,
      crowded: true,
      cause: "no memory for another answer"
    })
)
