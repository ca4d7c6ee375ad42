/** A worker's own side: who it is, and its channel to the primary. */
import { Context, Deferred, Effect, type Scope } from "effect"
import { type Channel, makeChannel, type Wire } from "../Channel.ts"
import type { Identity } from "../identity.ts"
import { toWorker } from "../protocol.ts"

export class WorkerLink extends Context.Service<
  WorkerLink,
  {
    readonly identity: Identity
    readonly channel: Channel
    /** done when the primary asks this worker to stop */
    readonly stopAsked: Deferred.Deferred<void>
  }
>()("tollgate/workers/WorkerLink") {}

/** A message that cannot be sent has no answer. When the primary is gone, Node ends this process. */
const toParent: Wire = {
  send: (message) => void process.send?.(message, undefined, undefined, () => undefined),
  listen: (listener) => {
    process.on("message", listener)
    return () => void process.off("message", listener)
  }
}

/** A worker at one end of `wire`. */
export const makeWorkerLinkOn = Effect.fnUntraced(function* (
  identity: Identity,
  wire: Wire
): Effect.fn.Return<WorkerLink["Service"], never, Scope.Scope> {
  const stopAsked = yield* Deferred.make<void>()
  const channel = yield* makeChannel(wire)
  channel.answer(toWorker.ping, () => Effect.void)
  // Until the server listens there is nothing to drain.
  channel.answer(toWorker.stop, () => Effect.asVoid(Deferred.succeed(stopAsked, undefined)))
  return { identity, channel, stopAsked }
})

/** This process as a worker. */
export const makeWorkerLink = (
  identity: Identity
): Effect.Effect<WorkerLink["Service"], never, Scope.Scope> => makeWorkerLinkOn(identity, toParent)
