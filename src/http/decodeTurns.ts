/**
 * Decodes large bodies one at a time, tenants in turn, with a pause after each: decoding holds the event loop, and a crowd of such
 * bodies would hold it for seconds. What takes longer has a longer pause, so the rest of the process has most of the time.
 */
import { Effect, Option, PartitionedSemaphore, type Result } from "effect"
import type { Unavailable } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { crowded } from "../memory/MemoryLedger.ts"

/** A pause lasts so many times as long as its turn. */
const pauses = 30
/** The longest pause. */
const longestPauseMs = 500
/** A body that has waited this long is refused. */
const maxWaitMs = 20_000

export const makeDecodeTurns = Effect.gen(function* () {
  const nowMs = yield* makeMonotonicMs
  const turns = yield* PartitionedSemaphore.make<string>({ permits: 1 })

  const run = <A, E>(decode: () => Result.Result<A, E>): Effect.Effect<A, E> => {
    const began = nowMs()
    const pause = Effect.suspend(() =>
      Effect.delay(turns.release(1), Math.min(longestPauseMs, pauses * (nowMs() - began)))
    )
    return Effect.ensuring(
      Effect.suspend(() => Effect.fromResult(decode())),
      Effect.forkDetach(pause)
    )
  }

  return <A, E>(tenantId: string, decode: () => Result.Result<A, E>): Effect.Effect<A, E | Unavailable> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(
        restore(Effect.timeoutOption(turns.take(tenantId, 1), maxWaitMs)),
        (turn): Effect.Effect<A, E | Unavailable> =>
          Option.isSome(turn) ? run(decode) : crowded("no turn to decode a large body")
      )
    )
})
