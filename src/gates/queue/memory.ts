/** The queue in memory: of one process, or of several in a test that share a `QueueMemory`. */
import { Effect, Layer } from "effect"
import { makeMonotonicMs } from "../../infra/time.ts"
import { FairScheduler, type Outcome } from "./FairScheduler.ts"
import {
  defaultBatchEveryMs,
  defaultGraceMs,
  type Message,
  QueueStore,
  type QueueStoreOptions
} from "./QueueStore.ts"

type Listener = (message: Message & { readonly replica: string }) => Effect.Effect<void>

/** The state that all replicas share. */
export class QueueMemory {
  readonly listeners = new Set<Listener>()
  readonly #options: QueueStoreOptions
  #scheduler: FairScheduler | undefined
  #lost = false

  constructor(options: QueueStoreOptions) {
    this.#options = options
  }

  /** Loses all state, as a store that was emptied. */
  clear(): void {
    this.#scheduler = undefined
    this.#lost = true
  }

  scheduler(now: number): FairScheduler {
    const { batchEveryMs = defaultBatchEveryMs, graceMs = defaultGraceMs, leaseS } = this.#options
    const options = { leaseMs: leaseS * 1000, graceMs, batchEveryMs }
    this.#scheduler ??= new FairScheduler(options, now, !this.#lost)
    return this.#scheduler
  }
}

/** One replica's view of `memory`. */
export const layerMemoryOf = (memory: QueueMemory, replica = "this"): Layer.Layer<QueueStore> =>
  Layer.effect(
    QueueStore,
    Effect.gen(function* () {
      const nowMs = yield* makeMonotonicMs
      /** the replicas that were known before a loss */
      let peers: ReadonlyArray<string> = []
      /** Runs one verb, and sends its messages. */
      const run = Effect.fnUntraced(function* <A>(
        verb: (scheduler: FairScheduler, now: number) => Outcome<A>
      ) {
        const now = nowMs()
        const { answer, messages } = verb(memory.scheduler(now), now)
        for (const message of messages) for (const listener of memory.listeners) yield* listener(message)
        return answer
      })
      return QueueStore.of({
        enter: (ticket, bounds) => run((scheduler, now) => scheduler.enter(now, replica, ticket, bounds)),
        leave: (id, bounds) => run((scheduler, now) => scheduler.leave(now, id, bounds)),
        end: (id, used, bounds, loadMs) =>
          run((scheduler, now) => scheduler.end(now, id, used, bounds, loadMs)),
        beat: (running, waiting, bounds, seen) =>
          run((scheduler, now) => {
            const outcome = scheduler.beat(now, replica, running, waiting, bounds, seen, peers)
            peers = scheduler.replicasAt(now) ?? peers
            return outcome
          }),
        restore: (held, bounds) => run((scheduler, now) => scheduler.restore(now, replica, held, bounds)),
        onMessage: (listener) => {
          const own: Listener = (message) => (message.replica === replica ? listener(message) : Effect.void)
          return Effect.acquireRelease(
            Effect.sync(() => void memory.listeners.add(own)),
            () => Effect.sync(() => void memory.listeners.delete(own))
          )
        }
      })
    })
  )

/** For one process without Redis, and for tests. */
export const layerMemory = (options: QueueStoreOptions): Layer.Layer<QueueStore> =>
  Layer.suspend(() => layerMemoryOf(new QueueMemory(options)))
