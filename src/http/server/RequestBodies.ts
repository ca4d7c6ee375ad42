/**
 * Bounds the memory of request bodies that are being received or admitted, by key and in total.
 *
 * - A key has at most as many bodies at once as its concurrent requests plus `spare`; more are 429.
 * - A key holds at most as many bytes as are left for all others (`FairShare.ts`). Beyond it the answer is 429 when the key
 *   holds a quarter of the total, else 503, both with `Retry-After`.
 *
 * Bytes count when memory is allocated, not when they are announced. They are given back when the request ends.
 *
 * Bodies before authentication have half as much memory of their own, so that callers without a key cannot use up the
 * memory of those with one. `smallBytes` of each are free, so that small requests pass when it is full.
 */
import { Context, Effect, Layer } from "effect"
import { Metrics } from "../../observability/Metrics.ts"
import type { Caller } from "../../domain/Caller.ts"
import { RateLimited, Unavailable } from "../../domain/Errors.ts"
import { FairShare } from "../../infra/FairShare.ts"

export interface RequestBodiesOptions {
  /** `REQUEST_BODIES_MAX_BYTES` */
  readonly maxBytes: number
}

/** Bodies that one key may have at once, in addition to its slots. */
export const spare = 16

export type NoRoom = RateLimited | Unavailable

/** The memory for one body. */
export interface Share {
  /** Takes memory for `bytes` in total. When there is none, the share does not change. */
  grow(bytes: number): NoRoom | undefined
  /** Gives all of it back. */
  close(): void
}

const smallBytes = 4096

const tooMany = ({ limits }: Caller): RateLimited =>
  new RateLimited({ limit: "concurrency", value: limits.concurrent, retryAfterS: 1 })

const crowded = (): Unavailable =>
  new Unavailable({
    gate: "Limiter",
    retryAfterS: 1,
    crowded: true,
    cause: "no memory for another request body"
  })

/** `take` takes bytes, or gives them back when they are negative. Its refusal changes nothing. */
const makeShare = (take: (more: number) => NoRoom | undefined): Share => {
  let own = 0
  return {
    grow: (bytes) => {
      const refusal = take(bytes - own)
      if (refusal === undefined) own = bytes
      return refusal
    },
    close: () => {
      take(-own)
      own = 0
    }
  }
}

const make = Effect.fnUntraced(function* ({ maxBytes }: RequestBodiesOptions) {
  const metrics = yield* Metrics
  const shares = new FairShare(maxBytes)
  /** number of bodies by key */
  const bodies = new Map<string, number>()
  let early = 0
  const bytes = () => shares.total + early
  yield* metrics.probe({
    name: "tollgate_request_body_bytes",
    help: "Bytes of request bodies that are being received or admitted",
    read: Effect.sync(bytes)
  })

  const takeEarly = (more: number): NoRoom | undefined => {
    if (more > 0 && early + more > maxBytes / 2) return crowded()
    early += more
    return undefined
  }

  const takeFor = (caller: Caller) => {
    // Keys share the memory, whatever their tenants are.
    const owner = { tenantId: caller.keyId, keyId: caller.keyId }
    return (more: number): NoRoom | undefined => {
      if (more > 0 && !shares.tenantFits(owner, more)) {
        return shares.heldByKey(owner) > maxBytes / 4 ? tooMany(caller) : crowded()
      }
      shares.take(owner, more)
      return undefined
    }
  }

  const count = ({ keyId }: Caller, more: number): void => {
    const now = (bodies.get(keyId) ?? 0) + more
    if (now === 0) bodies.delete(keyId)
    else bodies.set(keyId, now)
  }

  return {
    /** bytes of all shares */
    bytes,
    /** A share of the memory for bodies before authentication. */
    early: (): Share => {
      const share = makeShare(takeEarly)
      return { ...share, grow: (bytes) => share.grow(Math.max(0, bytes - smallBytes)) }
    },
    /** Runs `use` with a share of the caller's memory, and takes the share back when `use` ends. */
    withShare: <A, E, R>(caller: Caller, use: (share: Share) => Effect.Effect<A, E, R>) =>
      Effect.suspend((): Effect.Effect<A, E | RateLimited, R> => {
        if ((bodies.get(caller.keyId) ?? 0) >= caller.limits.concurrent + spare)
          return Effect.fail(tooMany(caller))
        count(caller, 1)
        const share = makeShare(takeFor(caller))
        const close = Effect.sync(() => {
          count(caller, -1)
          share.close()
        })
        return Effect.ensuring(use(share), close)
      })
  }
})

export class RequestBodies extends Context.Service<RequestBodies>()("tollgate/http/server/RequestBodies", {
  make
}) {
  static readonly layer = (options: RequestBodiesOptions): Layer.Layer<RequestBodies, never, Metrics> =>
    Layer.effect(RequestBodies, make(options))
}
