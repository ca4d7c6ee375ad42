/**
 * Limits the work for a key that its limits do not count: lists, the version, and refusals of its requests. When a key has
 * used it up, all its requests are refused for a while, directly after authentication.
 *
 * Each key has a bucket, and each tenant has one of three times as much, so that many keys of one tenant do not use the whole
 * process. A list or a refusal takes 1, and 1 more for each 16 KiB of body that was read for it. An admitted request takes nothing,
 * because the limits of the key count it.
 */
import { Context, Effect, Layer, Result } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { FreeWorkExhausted } from "../domain/Errors.ts"
import type { Headroom } from "../domain/Limits.ts"
import { makeLruCache } from "../infra/LruCache.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { makeFairBuckets } from "../infra/TokenBucket.ts"

export interface FreeWorkOptions {
  /** default 100 */
  readonly perSecond?: number
  /** default 200 */
  readonly burst?: number
  /** keys with a bucket in this process: those that were used last; default 10 000 */
  readonly keys?: number
  /** delayed refusals of one key at a time; default 256 */
  readonly maxWaiting?: number
}

/** The owner of a bucket. */
export type Spender = Pick<Caller, "keyId" | "tenantId">

const bytesPerUnit = 16_384
/** A bucket is overdrawn by so many seconds at most. */
const overdraftS = 10
/** A tenant has this many times as much as a key. */
const keysPerTenant = 3
const delayMs = 1000
/** How old the limits in the headers of such a refusal may be. */
const headroomMs = 1000

interface Shown {
  readonly headroom: Headroom | undefined
  readonly at: number
}

const make = Effect.fnUntraced(function* ({
  burst = 200,
  keys = 10_000,
  maxWaiting = 256,
  perSecond = 100
}: FreeWorkOptions) {
  const nowMs = yield* makeMonotonicMs
  const bucketsOf = makeFairBuckets({ perSecond, burst, overdraftS }, keysPerTenant, keys, nowMs)
  const shown = makeLruCache<Shown>(keys)
  /** delayed refusals by key */
  const delayed = new Map<string, number>()
  let waiting = 0

  const count = (keyId: string, more: number): void => {
    const now = (delayed.get(keyId) ?? 0) + more
    if (now === 0) delayed.delete(keyId)
    else delayed.set(keyId, now)
    waiting += more
  }

  return {
    /** A failure when the key, or its tenant, has nothing left. */
    check: ({ keyId, tenantId }: Spender): Result.Result<void, FreeWorkExhausted> => {
      for (const bucket of bucketsOf(tenantId, keyId)) {
        if (bucket.units > 0) continue
        const retryAfterS = Math.max(1, Math.ceil(bucket.msUntil(1) / 1000))
        return Result.fail(new FreeWorkExhausted({ value: bucket.rate.perSecond, retryAfterS }))
      }
      return Result.void
    },
    /** Takes the cost of one unmetered request that read a body of `bodyBytes`. */
    spend: ({ keyId, tenantId }: Spender, bodyBytes: number): void => {
      for (const bucket of bucketsOf(tenantId, keyId)) bucket.take(1 + bodyBytes / bytesPerUnit)
    },
    /**
     * Delays a refusal by a second, so that a key that does not wait as it is told slows itself down. Returns false when too many
     * refusals of the key wait; then its connection must be closed.
     */
    delay: (keyId: string) =>
      Effect.suspend(() => {
        if ((delayed.get(keyId) ?? 0) >= maxWaiting) return Effect.succeed(false)
        count(keyId, 1)
        return Effect.interruptible(Effect.sleep(delayMs)).pipe(
          Effect.as(true),
          Effect.ensuring(Effect.sync(() => count(keyId, -1)))
        )
      }),
    /** delayed refusals of all keys */
    get waiting() {
      return waiting
    },
    /** The limits last shown to the key; undefined once a second, so that one request reads them again. */
    headroom: (keyId: string): Headroom | undefined => {
      const [known, now] = [shown.get(keyId), nowMs()]
      if (known !== undefined && now - known.at < headroomMs) return known.headroom
      shown.set(keyId, { headroom: known?.headroom, at: now })
      return undefined
    },
    noteHeadroom: (keyId: string, headroom: Headroom): void => shown.set(keyId, { headroom, at: nowMs() })
  }
})

export class FreeWork extends Context.Service<FreeWork>()("tollgate/http/FreeWork", { make }) {
  static readonly layer = (options: FreeWorkOptions = {}): Layer.Layer<FreeWork> =>
    Layer.effect(FreeWork, make(options))
}
