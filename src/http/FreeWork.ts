/**
 * What a key may have done without its limits counting it: lists, the version, and refusals of its own requests. A key
 * that has used that up is refused everything for a while, after its secret is known and before anything else is done.
 *
 * *Details* A bucket for each key: 100 a second and 200 at once. A list or a refusal takes 1, and 1 more for each
 * 16 KiB of body that was read for it, because reading is what a refused body costs. A request that was admitted takes
 * nothing: the key's own limits count it. A bucket owes ten seconds at most.
 *
 * *Gotchas* Buckets are of this process. The 10 000 keys used last have one; a key that was pushed out starts with a full
 * one again.
 */
import { Context, Effect, Layer } from "effect"
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
}

const bytesPerUnit = 16_384
const mostOwedMs = 10_000
/** How old the limits may be that a refusal without free work shows. */
const headroomMs = 1000

interface Bucket {
  left: number
  countedAt: number
  headroom: Headroom | undefined
  headroomAt: number
}

export class FreeWork extends Context.Service<
  FreeWork,
  {
    /** Fails when the key has nothing left. */
    check(keyId: string): Effect.Effect<void, FreeWorkExhausted>
    /** Takes what one unmetered request has cost that read a body of `bodyBytes`. */
    spend(keyId: string, bodyBytes: number): void
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
        const { burst = 200, keys = 10_000, perSecond = 100 } = options
        const buckets = makeLruCache<Bucket>(keys)

        const bucketOf = (keyId: string): Bucket => {
          const now = nowMs()
          const known = buckets.get(keyId)
          if (known !== undefined) {
            known.left = Math.min(burst, known.left + ((now - known.countedAt) * perSecond) / 1000)
            known.countedAt = now
            return known
          }
          const full: Bucket = { left: burst, countedAt: now, headroom: undefined, headroomAt: now }
          buckets.set(keyId, full)
          return full
        }

        return FreeWork.of({
          check: (keyId) =>
            Effect.suspend(() => {
              const { left } = bucketOf(keyId)
              if (left > 0) return Effect.void
              return new FreeWorkExhausted({
                value: perSecond,
                retryAfterS: Math.max(1, Math.ceil((1 - left) / perSecond))
              })
            }),
          spend: (keyId, bodyBytes) => {
            const bucket = bucketOf(keyId)
            const owed = (mostOwedMs * perSecond) / 1000
            bucket.left = Math.max(-owed, bucket.left - 1 - bodyBytes / bytesPerUnit)
          },
          headroom: (keyId) => {
            const bucket = bucketOf(keyId)
            const now = nowMs()
            if (now - bucket.headroomAt < headroomMs) return bucket.headroom
            bucket.headroomAt = now
            return undefined
          },
          noteHeadroom: (keyId, headroom) => {
            const bucket = bucketOf(keyId)
            bucket.headroom = headroom
            bucket.headroomAt = nowMs()
          }
        })
      })
    )
}
