/** The queue in memory: of one process, or of several in a test that share a `QueueMemory`. */
import { Effect, Layer } from "effect"
import { makeMonotonicMs } from "../../infra/time.ts"
import { type Displacement, FairScheduler, type Grant } from "./FairScheduler.ts"
import {
  defaultBatchEveryMs,
  defaultGraceMs,
  type Displaced,
  QueueStore,
  type QueueStoreOptions
} from "./QueueStore.ts"

/** The state that all replicas share. */
export class QueueMemory {
  readonly #options: QueueStoreOptions
  readonly #listeners = new Map<string, Set<(id: string) => void>>()
  readonly #displacedListeners = new Map<string, Set<(displaced: Displaced) => void>>()
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
    this.#scheduler ??= new FairScheduler(
      {
        leaseMs: this.#options.leaseS * 1000,
        graceMs: this.#options.graceMs ?? defaultGraceMs,
        batchEveryMs: this.#options.batchEveryMs ?? defaultBatchEveryMs
      },
      now,
      !this.#lost
    )
    return this.#scheduler
  }

  notify(grants: ReadonlyArray<Grant>): void {
    for (const { id, replica } of grants) {
      for (const listener of this.#listeners.get(replica) ?? []) listener(id)
    }
  }

  notifyDisplaced({ id, replica, retryAfterS }: Displacement): void {
    for (const listener of this.#displacedListeners.get(replica) ?? []) listener({ id, retryAfterS })
  }

  listenDisplaced(replica: string, listener: (displaced: Displaced) => void): () => void {
    const listeners = this.#displacedListeners.get(replica) ?? new Set()
    this.#displacedListeners.set(replica, listeners.add(listener))
    return () => void listeners.delete(listener)
  }

  listen(replica: string, listener: (id: string) => void): () => void {
    const listeners = this.#listeners.get(replica) ?? new Set()
    this.#listeners.set(replica, listeners.add(listener))
    return () => void listeners.delete(listener)
  }
}

/** One replica's view of `memory`. */
export const layerMemoryOf = (memory: QueueMemory, replica = "this"): Layer.Layer<QueueStore> =>
  Layer.effect(
    QueueStore,
    Effect.map(makeMonotonicMs, (now) =>
      QueueStore.of({
        enter: (ticket, bounds) =>
          Effect.sync(() => {
            const { answer, displaced, grants } = memory
              .scheduler(now())
              .enter(now(), replica, ticket, bounds)
            memory.notify(grants)
            if (displaced !== undefined) memory.notifyDisplaced(displaced)
            return answer
          }),
        leave: (id, bounds) =>
          Effect.sync(() => {
            const { grants, retryAfterS } = memory.scheduler(now()).leave(now(), id, bounds)
            memory.notify(grants)
            return retryAfterS
          }),
        end: (id, used, bounds) =>
          Effect.sync(() => memory.notify(memory.scheduler(now()).end(now(), id, used, bounds))),
        beat: (running, waiting, bounds) =>
          Effect.sync(() => {
            const { displaced, granted, grants, unknown } = memory
              .scheduler(now())
              .beat(now(), replica, running, waiting, bounds)
            memory.notify(grants)
            return { displaced, granted, unknown }
          }),
        restore: (held, bounds) =>
          Effect.sync(() => memory.notify(memory.scheduler(now()).restore(now(), replica, held, bounds))),
        onGranted: (listener) => memory.listen(replica, listener),
        onDisplaced: (listener) => memory.listenDisplaced(replica, listener)
      })
    )
  )

/** For one process without Redis, and for tests. */
export const layerMemory = (options: QueueStoreOptions): Layer.Layer<QueueStore> =>
  Layer.suspend(() => layerMemoryOf(new QueueMemory(options)))
