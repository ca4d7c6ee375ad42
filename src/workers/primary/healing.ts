/** Lets a worker give back what another one held that died. */
import { Effect } from "effect"
import { type Casualty, toWorker } from "../protocol.ts"
import type { Member } from "./member.ts"

/** How long one round may take. */
const roundMs = 15_000
const retryMs = 250
/** Commands that the dead process had sent have run by then. */
const againAfterMs = 1000

/**
 * Asks one worker after the other until one has done it. It gives up when the leases of the dead worker have ended, because
 * crash recovery has done the rest then.
 */
export const heal = (
  casualty: Casualty,
  serving: () => ReadonlyArray<Member>,
  leaseS: number
): Effect.Effect<void> => {
  let turn = 0
  const once: Effect.Effect<void> = Effect.suspend(() => {
    const members = serving()
    const member = members[turn++ % Math.max(1, members.length)]
    const asked =
      member === undefined
        ? Effect.succeed(false)
        : Effect.match(member.channel.ask(toWorker.heal, casualty, roundMs), {
            onFailure: () => false,
            onSuccess: () => true
          })
    return Effect.flatMap(asked, (done) => (done ? Effect.void : Effect.delay(once, retryMs)))
  })
  return Effect.timeoutOrElse(Effect.andThen(once, Effect.delay(once, againAfterMs)), {
    duration: leaseS * 1000,
    orElse: () => Effect.logWarning("worker not healed, its requests end with their leases")
  })
}
