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
import { makeLruCache } from "../gates/keys/LruCache.ts"
import { makeMonotonicMs } from "../infra/time.ts"

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
const maxOverdraftMs = 10_000
/** A tenant has this many times as much as a key. */
const keysPerTenant = 3
/** How old the limits in the headers of such a refusal may be. */
const headroomMs = 1000
/** Requests within this time after the first such refusal were sent before the client knew. */
const graceMs = 250
const firstDelayMs = 25
const maxDelayMs = 1000
const forgivenAfterMs = 10_000

class Bucket {
  left: number
  countedAt: number
  readonly #perSecond: number
  readonly #burst: number

  constructor(perSecond: number, burst: number, now: number) {
    this.#perSecond = perSecond
    this.#burst = burst
    this.left = burst
    this.countedAt = now
  }

  fill(now: number): void {
    this.left = Math.min(this.#burst, this.left + ((now - this.countedAt) * this.#perSecond) / 1000)
    this.countedAt = now
  }

  take(units: number): void {
    this.left = Math.max(-(maxOverdraftMs * this.#perSecond) / 1000, this.left - units)
  }

  /** The refusal when nothing is left; undefined otherwise. */
  get exhausted(): FreeWorkExhausted | undefined {
    if (this.left > 0) return undefined
    const retryAfterS = Math.max(1, Math.ceil((1 - this.left) / this.#perSecond))
    return new FreeWorkExhausted({ value: this.#perSecond, retryAfterS })
  }
}

/** The state of a key. */
interface Account {
  readonly bucket: Bucket
  headroom: Headroom | undefined
  headroomAt: number
  /** since when, and until when, its refusals have had a `Retry-After` */
  waitSince: number
  waitUntil: number
  /** requests that came before that time, and the time of the last one */
  ignored: number
  ignoredAt: number
  /** delayed refusals */
  waiting: number
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
    Layer.effect(
      FreeWork,
      Effect.gen(function* () {
        const nowMs = yield* makeMonotonicMs
        const { burst = 200, keys = 10_000, maxWaiting = 256, perSecond = 100 } = options
        const accounts = makeLruCache<Account>(keys)
        const tenants = makeLruCache<Bucket>(keys)
        let waiting = 0

        const accountOf = (keyId: string, now: number): Account => {
          const existing = accounts.get(keyId)
          if (existing !== undefined) return existing
          const account: Account = {
            bucket: new Bucket(perSecond, burst, now),
            headroom: undefined,
            headroomAt: now,
            waitSince: now,
            waitUntil: now,
            ignored: 0,
            ignoredAt: now,
            waiting: 0
          }
          accounts.set(keyId, account)
          return account
        }

        const tenantBucketOf = (tenantId: string, now: number): Bucket => {
          const existing = tenants.get(tenantId)
          if (existing !== undefined) return existing
          const bucket = new Bucket(keysPerTenant * perSecond, keysPerTenant * burst, now)
          tenants.set(tenantId, bucket)
          return bucket
        }

        const bucketsOf = ({ keyId, tenantId }: Spender): ReadonlyArray<Bucket> => {
          const now = nowMs()
          const buckets = [accountOf(keyId, now).bucket, tenantBucketOf(tenantId, now)]
          for (const bucket of buckets) bucket.fill(now)
          return buckets
        }

        /** How long a new refusal waits. */
        const delayMs = (account: Account, retryAfterS: number, now: number): number => {
          if (now - account.ignoredAt >= forgivenAfterMs) account.ignored = 0
          if (now >= account.waitUntil) account.waitSince = now
          else if (account.ignored > 0 || now - account.waitSince >= graceMs) {
            account.ignored += 1
            account.ignoredAt = now
          }
          account.waitUntil = Math.max(account.waitUntil, now + retryAfterS * 1000)
          if (account.ignored === 0) return 0
          return Math.min(maxDelayMs, firstDelayMs * 2 ** (account.ignored - 1))
        }

        const wait = (account: Account, ms: number): Effect.Effect<boolean> => {
          account.waiting += 1
          waiting += 1
          // Randomised, so that the clients do not all come back at the same moment.
          return Effect.sleep(ms * (0.75 + Math.random() / 2)).pipe(
            Effect.as(true),
            Effect.interruptible,
            Effect.ensuring(
              Effect.sync(() => {
                account.waiting -= 1
                waiting -= 1
              })
            )
          )
        }

        return FreeWork.of({
          check: (spender) => {
            for (const { exhausted } of bucketsOf(spender)) {
              if (exhausted !== undefined) return Result.fail(exhausted)
            }
            return Result.void
          },
          spend: (spender, bodyBytes) => {
            for (const bucket of bucketsOf(spender)) bucket.take(1 + bodyBytes / bytesPerUnit)
          },
          delay: (keyId, { retryAfterS }) =>
            Effect.suspend(() => {
              const now = nowMs()
              const account = accountOf(keyId, now)
              const ms = delayMs(account, retryAfterS, now)
              if (ms === 0) return Effect.succeed(true)
              return account.waiting >= maxWaiting ? Effect.succeed(false) : wait(account, ms)
            }),
          get waiting() {
            return waiting
          },
          headroom: (keyId) => {
            const now = nowMs()
            const account = accountOf(keyId, now)
            if (now - account.headroomAt < headroomMs) return account.headroom
            account.headroomAt = now
            return undefined
          },
          noteHeadroom: (keyId, headroom) => {
            const now = nowMs()
            const account = accountOf(keyId, now)
            account.headroom = headroom
            account.headroomAt = now
          }
        })
      })
    )
}
