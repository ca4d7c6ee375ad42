/**
 * Bounds the memory of request bodies that are being received or admitted, by key and in total.
 *
 * - A key has at most as many bodies at once as its concurrent requests plus `spare`; more are 429.
 * - A key holds at most as many bytes as are left for all others: one key alone gets half, two get a third each, so
 *   something is always left. Beyond it the answer is 429 when the key holds a quarter of the total, else 503, both
 *   with `Retry-After`.
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
}

/** The memory for a body before authentication. */
export interface EarlyShare extends Share {
  /** Gives all of it back. A second call does nothing. */
  close(): void
}

const smallBytes = 4096

/** Callers without a body that may be remembered. */
const idleHolders = 256

interface Holder {
  bodies: number
  bytes: number
}

const tooMany = ({ limits }: Caller): RateLimited =>
  new RateLimited({ limit: "concurrency", value: limits.concurrent, retryAfterS: 1 })

const crowded = new Unavailable({
  gate: "Limiter",
  retryAfterS: 1,
  crowded: true,
  cause: "no memory for another request body"
})

export class RequestBodies extends Context.Service<
  RequestBodies,
  {
    /** Runs `use` with a share of the caller's memory, and takes the share back when `use` ends. */
    withShare<A, E, R>(
      caller: Caller,
      use: (share: Share) => Effect.Effect<A, E, R>
    ): Effect.Effect<A, E | RateLimited, R>
    /** A share of the memory for bodies before authentication. */
    early(): EarlyShare
    /** bytes of all shares */
    readonly bytes: () => number
  }
>()("tollgate/http/server/RequestBodies") {
  static readonly layer = (options: RequestBodiesOptions): Layer.Layer<RequestBodies, never, Metrics> =>
    Layer.effect(
      RequestBodies,
      Effect.gen(function* () {
        const metrics = yield* Metrics
        /** Callers without a body stay, up to `idleHolders`: V8 keeps old tables of a map that often changes (`DenseList.ts`). */
        const holders = new Map<string, Holder>()
        let total = 0
        let early = 0
        yield* metrics.probe({
          name: "tollgate_request_body_bytes",
          help: "Bytes of request bodies that are being received or admitted",
          read: Effect.sync(() => total + early)
        })
        return {
          bytes: () => total + early,
          early: () => {
            let own = 0
            return {
              grow: (bytes) => {
                const more = Math.max(0, bytes - smallBytes) - own
                if (more > 0 && early + more > options.maxBytes / 2) return crowded
                own += more
                early += more
                return undefined
              },
              close: () => {
                early -= own
                own = 0
              }
            }
          },
          withShare: <A, E, R>(caller: Caller, use: (share: Share) => Effect.Effect<A, E, R>) =>
            Effect.suspend((): Effect.Effect<A, E | RateLimited, R> => {
              const known = holders.get(caller.keyId)
              const holder = known ?? { bodies: 0, bytes: 0 }
              if (holder.bodies >= caller.limits.concurrent + spare) return Effect.fail(tooMany(caller))
              if (known === undefined) holders.set(caller.keyId, holder)
              holder.bodies += 1
              let own = 0
              const grow = (bytes: number): NoRoom | undefined => {
                const more = bytes - own
                if (holder.bytes + more > options.maxBytes - total - more) {
                  return holder.bytes > options.maxBytes / 4 ? tooMany(caller) : crowded
                }
                own += more
                holder.bytes += more
                total += more
                return undefined
              }
              return Effect.onExitPrimitive(use({ grow }), () => {
                holder.bodies -= 1
                holder.bytes -= own
                total -= own
                if (holder.bodies === 0 && holders.size > idleHolders) holders.delete(caller.keyId)
                return undefined
              })
            })
        }
      })
    )
}
