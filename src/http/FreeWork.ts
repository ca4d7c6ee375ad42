/**
 * What a key may have done without its limits counting it: lists, the version, and refusals of its own requests. A key
 * that has used that up is refused everything for a while, after its secret is known and before anything else is done.
 * When it goes on asking all the same, those refusals are answered late.
 *
 * *Details* A bucket for each key: 100 a second and 200 at once; and one for each tenant, of three times as much, so that
 * many keys of one tenant do not take the whole process. A list or a refusal takes 1, and 1 more for each 16 KiB of body
 * that was read for it, because reading is what a refused body costs. A request that was admitted takes nothing: the
 * key's own limits count it. A bucket owes ten seconds at most.
 *
 * A refusal is answered at once unless the key was told to wait (`Retry-After`) and has not: then each one doubles the
 * delay, from 25 ms up to a second. Requests that were under way when the key was first told are not held against it.
 * After ten seconds without such a request all is forgotten. Of one key 256 refusals wait; whoever comes beyond them is
 * refused at once, and its connection is closed.
 *
 * *Gotchas* Buckets are of this process. The 10 000 keys used last have one; a key that was pushed out starts with a full
 * one again.
 */
import { Context, Effect, Layer } from "effect"
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
  /** late answers of one key that may wait at a time; default 256 */
  readonly mostWaiting?: number
}

/** Whose free work it is. */
export type Spender = Pick<Caller, "keyId" | "tenantId">

const bytesPerUnit = 16_384
const mostOwedMs = 10_000
/** A tenant has as much as so many of its keys. */
const keysPerTenant = 3
/** How old the limits may be that a refusal without free work shows. */
const headroomMs = 1000
/** Requests that come so soon after the first word of waiting were sent before it. */
const graceMs = 250
const firstDelayMs = 25
const mostDelayMs = 1000
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
    this.left = Math.max(-(mostOwedMs * this.#perSecond) / 1000, this.left - units)
  }

  /** Why nothing is left; undefined when something is. */
  get exhausted(): FreeWorkExhausted | undefined {
    if (this.left > 0) return undefined
    const retryAfterS = Math.max(1, Math.ceil((1 - this.left) / this.#perSecond))
    return new FreeWorkExhausted({ value: this.#perSecond, retryAfterS })
  }
}

/** What is known of a key. */
interface Account {
  readonly bucket: Bucket
  headroom: Headroom | undefined
  headroomAt: number
  /** since when, and until when, it has been told to wait */
  toldAt: number
  toldUntil: number
  /** refusals that came although it was told to wait, and when the last of them came */
  ignored: number
  ignoredAt: number
  /** late answers that wait */
  waiting: number
}

export class FreeWork extends Context.Service<
  FreeWork,
  {
    /** Fails when the key, or its tenant, has nothing left. */
    check(spender: Spender): Effect.Effect<void, FreeWorkExhausted>
    /** Takes what one unmetered request has cost that read a body of `bodyBytes`. */
    spend(spender: Spender, bodyBytes: number): void
    /**
     * Waits before a key is refused that has nothing left, as long as it has earned. False when too many wait already: then
     * its connection is to be closed.
     */
    delay(keyId: string, refusal: FreeWorkExhausted): Effect.Effect<boolean>
    /** late answers that wait, of all keys */
    readonly waiting: number
    /** What was last shown of the key's limits; undefined once a second, so that one asker reads them anew. */
    headroom(keyId: string): Headroom | undefined
    noteHeadroom(keyId: string, headroom: Headroom): void
  }
>()("tollgate/http/FreeWork") {
  static readonly layer = (options: FreeWorkOptions = {}): Layer.Layer<FreeWork> =>
    Layer.effect(
      FreeWork,
      Effect.gen(function* () {
        const nowMs = yield* makeMonotonicMs
        const { burst = 200, keys = 10_000, mostWaiting = 256, perSecond = 100 } = options
        const accounts = makeLruCache<Account>(keys)
        const tenants = makeLruCache<Bucket>(keys)
        let waiting = 0

        const accountOf = (keyId: string, now: number): Account => {
          const known = accounts.get(keyId)
          if (known !== undefined) return known
          const account: Account = {
            bucket: new Bucket(perSecond, burst, now),
            headroom: undefined,
            headroomAt: now,
            toldAt: now,
            toldUntil: now,
            ignored: 0,
            ignoredAt: now,
            waiting: 0
          }
          accounts.set(keyId, account)
          return account
        }

        const tenantBucketOf = (tenantId: string, now: number): Bucket => {
          const known = tenants.get(tenantId)
          if (known !== undefined) return known
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

        /** How long a refusal that comes now waits. */
        const delayMs = (account: Account, retryAfterS: number, now: number): number => {
          if (now - account.ignoredAt >= forgivenAfterMs) account.ignored = 0
          if (now >= account.toldUntil) account.toldAt = now
          else if (account.ignored > 0 || now - account.toldAt >= graceMs) {
            account.ignored += 1
            account.ignoredAt = now
          }
          account.toldUntil = Math.max(account.toldUntil, now + retryAfterS * 1000)
          if (account.ignored === 0) return 0
          return Math.min(mostDelayMs, firstDelayMs * 2 ** (account.ignored - 1))
        }

        const wait = (account: Account, ms: number): Effect.Effect<boolean> => {
          account.waiting += 1
          waiting += 1
          // Spread, so that they do not all come again in the same moment.
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
          check: (spender) =>
            Effect.suspend(() => {
              for (const { exhausted } of bucketsOf(spender)) if (exhausted !== undefined) return exhausted
              return Effect.void
            }),
          spend: (spender, bodyBytes) => {
            for (const bucket of bucketsOf(spender)) bucket.take(1 + bodyBytes / bytesPerUnit)
          },
          delay: (keyId, { retryAfterS }) =>
            Effect.suspend(() => {
              const now = nowMs()
              const account = accountOf(keyId, now)
              const ms = delayMs(account, retryAfterS, now)
              if (ms === 0) return Effect.succeed(true)
              return account.waiting >= mostWaiting ? Effect.succeed(false) : wait(account, ms)
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
