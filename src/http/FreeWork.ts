/**
 * Limits the work for a key that its limits do not count: lists, the version, and refusals of its requests. When a key has
 * used it up, all its requests are refused for a while, directly after authentication. If the key keeps sending, these
 * refusals are delayed.
 *
 * *Details* Each key has a bucket: 100 a second and 200 at once. Each tenant has one of three times as much, so that
 * many keys of one tenant do not use the whole process. A list or a refusal takes 1, and 1 more for each 16 KiB of
 * body that was read for it. An admitted request takes nothing, because the limits of the key count it. A bucket is
 * overdrawn by ten seconds at most.
 *
 * A refusal is answered at once unless the key did not wait for its `Retry-After`. Then each refusal
 * doubles the delay, from 25 ms up to a second. Requests that were sent before the key got its first `Retry-After` do not count.
 * After ten seconds without such a request the delay ends. At most 256 refusals of one key wait; further ones are
 * answered at once, and their connection is closed.
 *
 * *Gotchas* The buckets belong to this process. The 10,000 most recently used keys have one; a key that returns after
 * that starts with a full one.
 */
import { Context, Effect, Layer, Result } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { FreeWorkExhausted } from "../domain/Errors.ts"
import type { Headroom } from "../domain/Limits.ts"
import { makeLruCache } from "../infra/LruCache.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { makeBuckets } from "../infra/TokenBucket.ts"

export interface FreeWorkOptions {
  /** default 100 */
  readonly perSecond?: number
  /** default 200 */
  readonly burst?: number
  /** default 10 000 */
  readonly keys?: number
  /** delayed refusals of one key at a time; default 256 */
  readonly maxWaiting?: number
}

/** The owner of a bucket. */
export type Spender = Pick<Caller, "keyId" | "tenantId">

const bytesPerUnit = 16_384
const overdraftS = 10
/** A tenant has this many times as much as a key. */
const keysPerTenant = 3
/** How old the limits in the headers of such a refusal may be. */
const headroomMs = 1000
/** Requests within this time after the first such refusal were sent before the client knew. */
const graceMs = 250
const firstDelayMs = 25
const maxDelayMs = 1000
const forgivenAfterMs = 10_000

/** What a key does while it has nothing left. */
class Patience {
  headroom: Headroom | undefined
  headroomAt = Number.NEGATIVE_INFINITY
  /** delayed refusals */
  waiting = 0
  /** since when, and until when, its refusals have had a `Retry-After` */
  #since = 0
  #until = Number.NEGATIVE_INFINITY
  /** requests that came before that time, and the time of the last one */
  #ignored = 0
  #ignoredAt = 0

  /** How long a new refusal waits. */
  delayMs(retryAfterS: number, now: number): number {
    if (now - this.#ignoredAt >= forgivenAfterMs) this.#ignored = 0
    if (now >= this.#until) this.#since = now
    else if (this.#ignored > 0 || now - this.#since >= graceMs) {
      this.#ignored += 1
      this.#ignoredAt = now
    }
    this.#until = Math.max(this.#until, now + retryAfterS * 1000)
    return this.#ignored === 0 ? 0 : Math.min(maxDelayMs, firstDelayMs * 2 ** (this.#ignored - 1))
  }
}

export class FreeWork extends Context.Service<
  FreeWork,
  {
    /** A failure when the key, or its tenant, has nothing left. */
    check(spender: Spender): Result.Result<void, FreeWorkExhausted>
    /** Takes the cost of one unmetered request that read a body of `bodyBytes`. */
    spend(spender: Spender, bodyBytes: number): void
    /**
     * Delays the refusal of a key that has nothing left. Returns false when too many wait; then its connection must
     * be closed.
     */
    delay(keyId: string, refusal: FreeWorkExhausted): Effect.Effect<boolean>
    /** delayed refusals of all keys */
    readonly waiting: number
    /** The limits last shown to the key; undefined once a second, so that one request reads them again. */
    headroom(keyId: string): Headroom | undefined
    noteHeadroom(keyId: string, headroom: Headroom): void
  }
>()("tollgate/http/FreeWork") {
  static readonly layer = (options: FreeWorkOptions = {}): Layer.Layer<FreeWork> =>
    Layer.effect(FreeWork, make(options))
}

const make = Effect.fnUntraced(function* ({
  burst = 200,
  keys = 10_000,
  maxWaiting = 256,
  perSecond = 100
}: FreeWorkOptions) {
  const nowMs = yield* makeMonotonicMs
  const rateOf = (times: number) => ({ perSecond: times * perSecond, burst: times * burst, overdraftS })
  const [keyRate, tenantRate] = [rateOf(1), rateOf(keysPerTenant)]
  const [ofKey, ofTenant] = [makeBuckets(keyRate, keys, nowMs), makeBuckets(tenantRate, keys, nowMs)]
  const patiences = makeLruCache<Patience>(keys)
  let waiting = 0

  const patienceOf = (keyId: string): Patience => {
    const known = patiences.get(keyId) ?? new Patience()
    patiences.set(keyId, known)
    return known
  }

  const bucketsOf = ({ keyId, tenantId }: Spender) => [
    { bucket: ofKey(keyId), rate: keyRate },
    { bucket: ofTenant(tenantId), rate: tenantRate }
  ]

  const wait = (patience: Patience, ms: number): Effect.Effect<boolean> => {
    const count = (more: number) =>
      Effect.sync(() => {
        patience.waiting += more
        waiting += more
      })
    // Randomised, so that the clients do not all come back at the same moment.
    const sleep = Effect.sleep(ms * (0.75 + Math.random() / 2))
    return Effect.acquireUseRelease(
      count(1),
      () => Effect.as(Effect.interruptible(sleep), true),
      () => count(-1)
    )
  }

  return FreeWork.of({
    check: (spender) => {
      for (const { bucket, rate } of bucketsOf(spender)) {
        if (bucket.units > 0) continue
        const retryAfterS = Math.max(1, Math.ceil(bucket.msUntil(1) / 1000))
        return Result.fail(new FreeWorkExhausted({ value: rate.perSecond, retryAfterS }))
      }
      return Result.void
    },
    spend: (spender, bodyBytes) => {
      for (const { bucket } of bucketsOf(spender)) bucket.take(1 + bodyBytes / bytesPerUnit)
    },
    delay: (keyId, { retryAfterS }) =>
      Effect.suspend(() => {
        const patience = patienceOf(keyId)
        const ms = patience.delayMs(retryAfterS, nowMs())
        if (ms === 0) return Effect.succeed(true)
        return patience.waiting >= maxWaiting ? Effect.succeed(false) : wait(patience, ms)
      }),
    get waiting() {
      return waiting
    },
    headroom: (keyId) => {
      const [patience, now] = [patienceOf(keyId), nowMs()]
      if (now - patience.headroomAt < headroomMs) return patience.headroom
      patience.headroomAt = now
      return undefined
    },
    noteHeadroom: (keyId, headroom) => {
      const patience = patienceOf(keyId)
      patience.headroom = headroom
      patience.headroomAt = nowMs()
    }
  })
})
