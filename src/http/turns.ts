/**
 * Work that a large body costs is done for one body at a time, tenants in turn: a crowd of such bodies would hold the event loop, or
 * Node's threads, for seconds.
 */
import { Effect, Option, PartitionedSemaphore, Result } from "effect"
import type { Unavailable } from "../domain/Errors.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { crowded } from "../memory/MemoryLedger.ts"

/** A body that has waited this long is refused. */
const maxWaitMs = 20_000

/** `does`: what the work does to a body. The next turn comes `pauseMs` after a turn that took some time. */
export const makeTurns = Effect.fnUntraced(function* (does: string, pauseMs?: (tookMs: number) => number) {
  const nowMs = yield* makeMonotonicMs
  const turns = yield* PartitionedSemaphore.make<string>({ permits: 1 })
  const release = turns.release(1)

  const run = <A, E>(work: Effect.Effect<A, E>): Effect.Effect<A, E> => {
    const began = nowMs()
    const next: Effect.Effect<unknown> =
      pauseMs === undefined
        ? release
        : Effect.forkDetach(Effect.suspend(() => Effect.delay(release, pauseMs(nowMs() - began))))
    return Effect.ensuring(work, next)
  }

  return <A, E>(tenantId: string, work: Effect.Effect<A, E>): Effect.Effect<A, E | Unavailable> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(
        restore(Effect.timeoutOption(turns.take(tenantId, 1), maxWaitMs)),
        (turn): Effect.Effect<A, E | Unavailable> =>
          Option.isSome(turn) ? run(restore(work)) : crowded(`no turn to ${does} a body`)
      )
    )
})

/** A pause lasts so many times as long as its turn, so the rest of the process has most of the time. */
const pauses = 30
/** The longest pause. */
const longestPauseMs = 500

/** Turns to decode large bodies. Decoding holds the event loop. */
export const makeDecodeTurns = Effect.map(
  makeTurns("decode", (tookMs) => Math.min(longestPauseMs, pauses * tookMs)),
  (inTurn) =>
    <A, E>(tenantId: string, decode: () => Result.Result<A, E>) =>
      inTurn(
        tenantId,
        Effect.suspend(() => Effect.fromResult(decode()))
      )
)
