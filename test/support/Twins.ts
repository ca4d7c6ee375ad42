/**
 * The whole gateway on a real socket, in memory (`inMemory.ts`), with a switch for each gate: what happens when a subsystem
 * is gone, without taking a real one down.
 */
import { Context, Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import { AuditMemory } from "./twins/Audit.ts"
import { layerMemory as layerBackend, replyWith } from "./twins/Backend.ts"
import type { Gate } from "../../src/domain/Errors.ts"
import type { Budgets } from "../../src/domain/Limits.ts"
import { makeMemory as makeKeys, memoryKey } from "./twins/KeyStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { Meter, MeterDown } from "../../src/gates/meter/Meter.ts"
import { DiscoveryControl, layerMemory as layerDiscovery } from "./twins/Discovery.ts"
import { layerFromStore } from "../../src/gates/queue/fromStore.ts"
import { layerMemory as layerMemoryQueueStore } from "../../src/gates/queue/memory.ts"
import { QueueStore, QueueStoreDown } from "../../src/gates/queue/QueueStore.ts"
import { layerInMemory } from "./inMemory.ts"
import { modelNamed } from "./permits.ts"
import { layerLogging } from "../../src/observability/logging.ts"
import { intercept } from "./intercept.ts"

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

const make = () => {
  const keys = makeKeys()
  const down = { meter: false, queue: false }
  let [calls, renewals] = [0, 0]
  let next: { readonly frames: number; readonly first: Effect.Effect<void> } | undefined

  const meter = Layer.effect(
    Meter,
    Effect.map(Meter, (meter) =>
      intercept(meter, (part) =>
        Effect.suspend(() => {
          if (part === "renew") renewals += 1
          return down.meter ? new MeterDown({ cause: new Error("down") }) : Effect.void
        })
      )
    )
  ).pipe(Layer.provide(Layer.fresh(layerMeter({ leaseS: 30 }))))

  const queueStore = Layer.effect(
    QueueStore,
    Effect.map(QueueStore, (store) =>
      intercept(store, () =>
        Effect.suspend(() => (down.queue ? new QueueStoreDown({ cause: new Error("down") }) : Effect.void))
      )
    )
  ).pipe(Layer.provide(Layer.fresh(layerMemoryQueueStore({ leaseS: 30 }))))

  const backend = layerBackend({
    models: Effect.succeed([modelNamed("m:latest")]),
    reply: ({ numPredict }) =>
      Effect.suspend(() => {
        calls += 1
        const said =
          next === undefined ? ["Hello", " world"] : Array.from({ length: next.frames }, () => "word ")
        const first = next?.first ?? Effect.void
        next = undefined
        return Effect.as(first, replyWith(said, numPredict))
      })
  })

  const discovery = layerDiscovery([modelNamed("m:latest")])
  const gateway = layerInMemory({
    keyStore: keys.layer,
    discovery,
    queue: layerFromStore({ places: 100, depth: 100, maxWaitMs: 10_000 }).pipe(Layer.provide(queueStore)),
    meter,
    backend,
    drainMs: 500
  })

  return Layer.effect(
    Twins,
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      const [{ breakDown }, audit] = [yield* DiscoveryControl, yield* AuditMemory]
      return Twins.of({
        url: HttpServer.formatAddress(address),
        setDown: {
          KeyStore: (is) => Effect.sync(() => keys.setDown(is)),
          Discovery: breakDown,
          Limiter: (is) => Effect.sync(() => void (down.meter = is)),
          Budget: audit.setLedgerDown,
          Queue: (is) => Effect.sync(() => void (down.queue = is)),
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
  ).pipe(
    Layer.provide([gateway, discovery]),
    Layer.provide(layerLogging({ logLevel: "fatal", production: false }))
  )
}

export const layerTwins = Layer.fresh(Layer.suspend(make))
