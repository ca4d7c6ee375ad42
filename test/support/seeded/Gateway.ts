/**
 * One gateway: the composition of `src/App.ts` on twins, from Node's `request` event inwards. The parser and the sockets of Node
 * stay outside, and so do what a process does beside its requests: metrics, the prompt log, its report and the pruning of old rows.
 */
import type { IncomingMessage, ServerResponse } from "node:http"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Result, Scope } from "effect"
import { HttpMiddleware } from "effect/http"
import { layerRequests, serverOptionsOf } from "../../../src/App.ts"
import { layerMemory as layerBackend } from "../twins/Backend.ts"
import type { Calendar } from "../../../src/domain/Calendar.ts"
import { SettlementQueue } from "../../../src/gates/limits/SettlementQueue.ts"
import { makeApp } from "../../../src/http/app.ts"
import { layerParts } from "../../../src/http/Server.ts"
import { Metrics } from "../../../src/observability/Metrics.ts"
import { PromptLog } from "../../../src/promptlog/PromptLog.ts"
import { ContextSecret } from "../../../src/secrets/ContextSecret.ts"
import { readSettings, type SettingsValues } from "../../../src/Settings.ts"
import type { ModelServer } from "./ModelServer.ts"
import type { Postgres } from "./Postgres.ts"
import type { Redis } from "./Redis.ts"
import type { Process } from "./Simulation.ts"

/** The defaults, but for what would take longer than a seed. */
const settings = Result.getOrThrow(
  readSettings({
    PLAYGROUND_ENABLED: "false",
    MODEL_DISCOVERY_REFRESH_S: "10",
    MODEL_DISCOVERY_CACHE_TTL_S: "60",
    QUEUE_MAX_DEPTH: "6",
    QUEUE_MAX_WAIT_MS: "8000",
    BREAKER_OPEN_MS: "1500",
    NUM_PREDICT_CAP: "4096"
  })
)
export const { breakerFailures, breakerOpenMs, keyFreshnessMs, keyNamespace, queueMaxWaitMs } = settings

export interface Stores {
  /** of all gateways */
  readonly calendar: Calendar
  readonly postgres: Postgres
  readonly redis: Redis
  readonly model: ModelServer
  readonly leaseS: number
  /** places at the model server; undefined: no queue */
  readonly places: number | undefined
  /** models that fit beside each other; undefined: learned, and models take turns */
  readonly loadedModels: number | undefined
}

/** The real one keeps figures for Prometheus, and asks V8 for its own. */
const layerMetrics = Layer.succeed(Metrics, {
  observe: () => Effect.void,
  firstFrame: () => Effect.void,
  modelLoaded: () => Effect.void,
  revoked: () => Effect.void,
  promptsDropped: () => Effect.void,
  malformed: () => Effect.void,
  backgroundFailed: () => Effect.void,
  queueing: () => (wait) => wait,
  probe: () => Effect.void,
  gauges: () => Effect.succeed({}),
  exposition: Effect.succeed("")
})

const layerOf = (of: Process, values: SettingsValues, { model, postgres, redis }: Stores) => {
  const { dice } = of.simulation
  // As long as argon2 takes, alone or on a busy machine.
  const verifyMs = () =>
    model.hurries ? 8 : dice.chance(0.2) ? dice.between(1000, 2500) : dice.between(8, 300)
  const verify = (hash: string, secret: string) => Effect.as(Effect.sleep(verifyMs()), hash === secret)
  const requests = layerRequests(values, {
    meter: redis.meterOf(of),
    queueStore: redis.queueOf(of),
    backend: layerBackend(model.scriptOf(of)),
    compareEveryS: 2,
    secretCheck: { concurrency: 1, decoyHash: Effect.succeed("nobody's"), verify }
  })
  return layerParts(serverOptionsOf(values).bounds).pipe(
    Layer.provideMerge(requests),
    Layer.provideMerge(
      Layer.mergeAll(
        layerMetrics,
        Layer.effect(PgClient.PgClient, postgres.clientOf(of)),
        Layer.succeed(PromptLog, { transcript: () => undefined }),
        Layer.succeed(ContextSecret, { read: Effect.succeed(Buffer.alloc(32, 1)) })
      )
    )
  )
}

/** What a test of the inside may ask. */
export interface Running {
  readonly handler: (incoming: IncomingMessage, response: ServerResponse) => void
  /** settlements that wait */
  readonly backlog: () => number
}

/** Starts a gateway. `ready` gets its handler. */
export const startGateway = (of: Process, stores: Stores, ready: (running: Running) => void): void => {
  const values = {
    ...settings,
    timezone: stores.calendar.zone,
    concurrencyLeaseS: stores.leaseS,
    backendMaxConcurrent: stores.places,
    backendMaxLoadedModels: stores.loadedModels
  }
  const start = Effect.gen(function* () {
    const scope = yield* Scope.make()
    const services = yield* Layer.buildWithScope(layerOf(of, values, stores), scope)
    const handler = yield* Effect.flatMap(makeApp(serverOptionsOf(values)), (served) =>
      NodeHttpServer.makeHandler(served, { scope })
    ).pipe(
      Effect.provideService(HttpMiddleware.TracerDisabledWhen, () => true),
      Effect.provide(services)
    )
    const { backlog } = Context.get(services, SettlementQueue)
    const run = Effect.runSyncWith(yield* Effect.context<never>())
    ready({ handler, backlog: () => run(backlog) })
  })
  Effect.runForkWith(of.services)(Effect.tapCause(start, (cause) => Effect.logFatal("did not start", cause)))
}
