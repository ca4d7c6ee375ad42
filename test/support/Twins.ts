/**
 * The whole gateway on a real socket with the memory twin of everything behind it, and a switch for each gate: what
 * happens when a subsystem is gone, without taking a real one down.
 */
import { Context, Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { AuditMemory } from "../../src/audit/memory.ts"
import { layerLogging } from "../../src/observability/logging.ts"
import { layerMemory as layerBackend, replyWith } from "../../src/backend/memory.ts"
import type { Gate } from "../../src/domain/Errors.ts"
import type { Budgets } from "../../src/domain/Limits.ts"
import { DiscoveryControl, layerMemory as layerDiscovery } from "../../src/gates/models/memory.ts"
import { makeMemory as makeKeys, memoryKey } from "../../src/gates/keys/memory.ts"
import { layerFromStore as layerQueueFromStore } from "../../src/gates/queue/fromStore.ts"
import { layerMemory as layerMemoryQueueStore } from "../../src/gates/queue/memory.ts"
import { QueueStore, QueueStoreDown } from "../../src/gates/queue/QueueStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { Meter, MeterDown } from "../../src/gates/meter/Meter.ts"
import { layerInMemory, memoryModel } from "../../src/inMemory.ts"

/** A subsystem that can be taken away and given back. */
export type Switch = (down: boolean) => Effect.Effect<void>

export class Twins extends Context.Service<
  Twins,
  {
    readonly url: string
    /** a switch per gate: a gate without one does not compile */
    readonly setDown: { readonly [G in Gate]: Switch }
    /** a fresh key with the model `m:latest`; its counters are in nobody's memory yet */
    newKey(budgets?: Budgets): string
    /** calls that reached the backend */
    readonly backendCalls: () => number
    readonly audit: AuditMemory["Service"]
    /** The next answer has so many frames of one word, and `first` happens before the first of them. */
    speak(frames: number, first: Effect.Effect<void>): void
    /** how often running requests asked the Meter to renew or extend what they hold */
    readonly renewals: () => number
  }
>()("test/Twins") {}

/** The Meter, which answers nothing but `MeterDown` while it is down. */
const layerSwitchedMeter = (isDown: () => boolean, renewed: () => void): Layer.Layer<Meter> =>
  Layer.effect(
    Meter,
    Effect.map(Meter, (meter) => {
      const up = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.suspend((): Effect.Effect<A, E | MeterDown> =>
          isDown() ? new MeterDown({ cause: new Error("down") }) : effect
        )
      return Meter.of({
        ...meter,
        reserve: (...args) => up(meter.reserve(...args)),
        renew: (...args) => {
          renewed()
          return up(meter.renew(...args))
        },
        settle: (...args) => up(meter.settle(...args)),
        renewSlot: (...args) => up(meter.renewSlot(...args)),
        freeSlot: (...args) => up(meter.freeSlot(...args)),
        cancel: (...args) => up(meter.cancel(...args)),
        peek: (...args) => up(meter.peek(...args)),
        load: (...args) => up(meter.load(...args)),
        ping: up(meter.ping)
      })
    })
  ).pipe(Layer.provide(Layer.fresh(layerMeter({ leaseS: 30 }))))

/** The places at the backend, which answer nothing but `QueueStoreDown` while they are down. */
const layerSwitchedQueue = (isDown: () => boolean) => {
  const store = Layer.effect(
    QueueStore,
    Effect.map(QueueStore, (store) => {
      const up = <A, E>(effect: Effect.Effect<A, E>) =>
        Effect.suspend((): Effect.Effect<A, E | QueueStoreDown> =>
          isDown() ? new QueueStoreDown({ cause: new Error("down") }) : effect
        )
      return QueueStore.of({
        enter: (...args) => up(store.enter(...args)),
        leave: (...args) => up(store.leave(...args)),
        end: (...args) => up(store.end(...args)),
        beat: (...args) => up(store.beat(...args)),
        restore: (...args) => up(store.restore(...args)),
        onMessage: store.onMessage
      })
    })
  ).pipe(Layer.provide(Layer.fresh(layerMemoryQueueStore({ leaseS: 30 }))))
  return layerQueueFromStore({ places: 100, depth: 100, maxWaitMs: 10_000 }).pipe(Layer.provide(store))
}

const layerTwinsWith = Layer.unwrap(
  Effect.sync(() => {
    const keys = makeKeys()
    let meterDown = false
    let queueDown = false
    const layerQueue = layerSwitchedQueue(() => queueDown)
    let calls = 0
    let renewals = 0
    let next: { readonly frames: number; readonly first: Effect.Effect<void> } | undefined
    const backend = layerBackend({
      models: Effect.succeed([memoryModel("m:latest")]),
      reply: ({ maxTokens }) =>
        Effect.suspend(() => {
          calls += 1
          const [words, first] = [next?.frames ?? 0, next?.first ?? Effect.void]
          const said = next === undefined ? ["Hello", " world"] : Array.from({ length: words }, () => "word ")
          next = undefined
          return Effect.as(first, replyWith(said, maxTokens))
        })
    })
    const discovery = layerDiscovery([memoryModel("m:latest")])
    const gateway = layerInMemory({
      keyStore: keys.layer,
      discovery,
      queue: layerQueue,
      meter: layerSwitchedMeter(
        () => meterDown,
        () => void (renewals += 1)
      ),
      backend,
      drainMs: 500
    })
    const twins = Layer.effect(
      Twins,
      Effect.gen(function* () {
        const [{ address }, discovery, audit] = [
          yield* HttpServer.HttpServer,
          yield* DiscoveryControl,
          yield* AuditMemory
        ]
        return Twins.of({
          url: HttpServer.formatAddress(address),
          setDown: {
            KeyStore: (down) => Effect.sync(() => keys.setDown(down)),
            Discovery: discovery.breakDown,
            Limiter: (down) => Effect.sync(() => void (meterDown = down)),
            Budget: audit.setLedgerDown,
            Queue: (down) => Effect.sync(() => void (queueDown = down)),
            Audit: audit.setDown
          },
          newKey: (budgets = {}) => {
            const key = memoryKey({ budgets })
            keys.add(key)
            return key.secret
          },
          backendCalls: () => calls,
          audit,
          speak: (frames, first) => void (next = { frames, first }),
          renewals: () => renewals
        })
      })
    )
    return twins.pipe(
      Layer.provide([gateway, discovery]),
      Layer.provide(layerLogging({ logLevel: "fatal", production: false }))
    )
  })
)

export const layerTwins = Layer.fresh(layerTwinsWith)
