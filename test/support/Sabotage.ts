/** A gateway whose own parts can be made to break, not to fail: what no error type has foreseen. */
import { Context, Effect, Layer, Redacted, Result } from "effect"
import { HttpServer } from "effect/http"
import { boundsOf, layerGates } from "../../src/App.ts"
import { layerLogging } from "../../src/observability/logging.ts"
import { Audit } from "../../src/audit/Audit.ts"
import { Metrics } from "../../src/observability/Metrics.ts"
import { Backend } from "../../src/backend/Backend.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import { Discovery } from "../../src/gates/models/Discovery.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import * as Server from "../../src/http/Server.ts"
import { readSettings, type SettingsValues } from "../../src/Settings.ts"
import { Fake, Gateway } from "./Gateway.ts"
import { TestRedis } from "./TestRedis.ts"

/** What breaks, once, the next time it is used, by name: `Meter.settle`. */
export class Sabotage extends Context.Service<
  Sabotage,
  {
    arm(part: string): void
    /** whether it has been used since */
    readonly sprung: () => boolean
  }
>()("test/Sabotage") {}

const armed: { part: string | undefined } = { part: undefined }

const breakable = <S extends object>(name: string, service: S): S =>
  new Proxy(service, {
    get: (target, property, receiver) => {
      const part: unknown = Reflect.get(target, property, receiver)
      if (Effect.isEffect(part)) {
        return Effect.suspend((): Effect.Effect<unknown, unknown, unknown> => {
          if (armed.part !== `${name}.${String(property)}`) return part
          armed.part = undefined
          return Effect.die(new Error(`sabotage of ${name}.${String(property)}`))
        })
      }
      if (typeof part !== "function") return part
      return (...args: ReadonlyArray<unknown>): unknown => {
        if (armed.part === `${name}.${String(property)}`) {
          const defect = new Error(`sabotage of ${armed.part}`)
          armed.part = undefined
          return Effect.die(defect)
        }
        return Reflect.apply(part, target, args)
      }
    }
  })

const layerBreakable = Layer.effectContext(
  Effect.gen(function* () {
    return Context.make(KeyStore, breakable("KeyStore", yield* KeyStore)).pipe(
      Context.add(Discovery, breakable("Discovery", yield* Discovery)),
      Context.add(Budget, breakable("Budget", yield* Budget)),
      Context.add(Meter, breakable("Meter", yield* Meter)),
      Context.add(Audit, breakable("Audit", yield* Audit)),
      Context.add(Backend, breakable("Backend", yield* Backend)),
      Context.add(Metrics, breakable("Metrics", yield* Metrics))
    )
  })
)

/** On the parts that can break, so that they break inside the Limiter too. */
const layerBreakableLimiter = Layer.effect(
  Limiter,
  Effect.map(Limiter, (limiter) => breakable("Limiter", limiter))
).pipe(Layer.provide(Layer.fresh(Limiter.layer)))

export const layerSabotaged = (env: Readonly<Record<string, string>>) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const [redis, fake] = [yield* TestRedis, yield* Fake]
      const backendUrl = new URL(fake.url)
      const settings: SettingsValues = {
        ...Result.getOrThrow(
          readSettings({ PORT: "0", LOG_LEVEL: "fatal", MODEL_DISCOVERY_REFRESH_S: "1", ...env })
        ),
        redisUrl: Redacted.make(redis.url),
        backendUrl
      }
      const server = Server.layer({
        ...settings,
        bounds: boundsOf(settings),
        shutdownDrainMs: 0,
        playground: false,
        lowersOutput: settings.outputAboveCap === "lower",
        refusesOverflow: settings.promptOverflow === "refuse"
      }).pipe(
        Layer.provide(layerBreakableLimiter),
        Layer.provide(layerBreakable),
        Layer.provide(layerGates(settings, backendUrl))
      )
      const gateway = Layer.effect(
        Gateway,
        Effect.map(HttpServer.HttpServer, ({ address }) => ({
          url: HttpServer.formatAddress(address),
          settings
        }))
      ).pipe(Layer.provide(server))
      const sabotage = Layer.succeed(Sabotage, {
        arm: (part) => void (armed.part = part),
        sprung: () => armed.part === undefined
      })
      return Layer.merge(gateway, sabotage).pipe(Layer.provideMerge(layerLogging(settings)))
    })
  )
