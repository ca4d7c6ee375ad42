/**
 * One gateway: the composition of `src/App.ts` on the twins, from Node's `request` event inwards. The parser and the sockets
 * of Node stay outside, and so do the prompt log, the reports of replicas and the pruning of old rows.
 */
import { IncomingMessage, ServerResponse } from "node:http"
import { BlockList, Socket } from "node:net"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Scope } from "effect"
import { HttpMiddleware } from "effect/http"
import { layerPostgres as layerAudit } from "../../src/audit/postgres.ts"
import { AnswerMemory } from "../../src/backend/AnswerMemory.ts"
import { layerCircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { layerMemory as layerBackend } from "../../src/backend/memory.ts"
import { layerPostgres as layerKeyStore } from "../../src/gates/keys/postgres.ts"
import { layerFromMeter as layerBudget } from "../../src/gates/limits/budgetFromMeter.ts"
import { layerFromMeter as layerLimiter } from "../../src/gates/limits/limiterFromMeter.ts"
import { SettlementQueue } from "../../src/gates/limits/SettlementQueue.ts"
import { ModelRates } from "../../src/gates/limits/TokenRates.ts"
import { layerPolling } from "../../src/gates/models/polling.ts"
import { layerFromStore, layerNone } from "../../src/gates/queue/fromStore.ts"
import { makeApp } from "../../src/http/app.ts"
import { FreeWork } from "../../src/http/FreeWork.ts"
import { Readiness } from "../../src/http/health.ts"
import { RequestBodies } from "../../src/http/server/RequestBodies.ts"
import { Tarpit } from "../../src/http/server/Tarpit.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { layerCounterReconciler } from "../../src/ledger/CounterReconciler.ts"
import { layerCrashRecovery } from "../../src/ledger/CrashRecovery.ts"
import { layerPostgres as layerLedger } from "../../src/ledger/postgres.ts"
import { FailureLog } from "../../src/observability/failureLog.ts"
import { Metrics } from "../../src/observability/Metrics.ts"
import { PromptLog } from "../../src/promptlog/PromptLog.ts"
import { LeaseKeeper } from "../../src/request/LeaseKeeper.ts"
import { ContextSecret } from "../../src/secrets/ContextSecret.ts"
import type { ModelServer } from "./ModelServer.ts"
import type { Postgres } from "./Postgres.ts"
import type { Redis } from "./Redis.ts"
import type { Process } from "./Simulation.ts"

export const freshnessMs = 1000
export const queueMaxWaitMs = 8000
export const breakerFailures = 5
export const breakerOpenMs = 1500
export const namespace = "tg_"

export interface Stores {
  readonly postgres: Postgres
  readonly redis: Redis
  readonly model: ModelServer
  readonly leaseS: number
  /** places at the model server; undefined: no queue */
  readonly places: number | undefined
}

/** The real one keeps figures for Prometheus, and asks V8 for its own. */
const layerMetrics = Layer.succeed(Metrics, {
  observe: () => Effect.void,
  firstFrame: () => Effect.void,
  modelLoaded: () => Effect.void,
  pinnedLoaded: () => Effect.void,
  revoked: () => Effect.void,
  promptsDropped: () => Effect.void,
  malformed: () => Effect.void,
  backgroundFailed: () => Effect.void,
  queueing: () => (wait) => wait,
  probe: () => Effect.void,
  gauges: () => Effect.succeed({}),
  exposition: Effect.succeed("")
})

const layerOf = (of: Process, { leaseS, model, places, postgres, redis }: Stores) => {
  const { dice } = of.simulation
  const queue =
    places === undefined
      ? layerNone
      : layerFromStore({ places, depth: 6, maxWaitMs: queueMaxWaitMs }).pipe(Layer.provide(redis.queueOf(of)))
  const keys = layerKeyStore({
    namespace,
    freshnessMs,
    readTimeoutMs: 500,
    secretCheck: {
      concurrency: 1,
      reserve: 1,
      decoyHash: Effect.succeed("nobody's"),
      // As long as argon2 takes, alone or on a busy machine.
      verify: (hash, secret) =>
        Effect.as(
          Effect.sleep(
            dice.chance(model.hurries ? 0 : 0.2) ? dice.between(1000, 2500) : dice.between(8, 300)
          ),
          hash === secret
        )
    }
  })
  const limits = layerLimiter.pipe(
    Layer.provideMerge(
      Layer.mergeAll(layerBudget, ModelRates.layer, SettlementQueue.layer({ drainMs: 2000 }))
    )
  )
  const server = Layer.mergeAll(
    Readiness.layer,
    FailureLog.layer,
    Tarpit.layer({ perSecond: 200, burst: 100, rowsPerMinute: 60 }),
    RequestBodies.layer({ maxBytes: 67_108_864 }),
    FreeWork.layer()
  )
  return server.pipe(
    Layer.provideMerge(
      Layer.mergeAll(
        keys,
        layerPolling({ refreshS: 10, ttlS: 60 }),
        limits,
        layerCrashRecovery({ leaseS }),
        LeaseKeeper.layer({ leaseS }),
        Layer.succeed(PromptLog, { transcript: () => undefined }),
        Layer.succeed(ContextSecret, { read: Effect.succeed(Buffer.alloc(32, 1)) })
      )
    ),
    Layer.provideMerge(layerLedger),
    Layer.provideMerge(
      layerAudit({ leaseS, anonymousCapacity: 5000, openTimeoutMs: 700, refuseTimeoutMs: 250 })
    ),
    Layer.provideMerge(layerCounterReconciler({ everyS: 2 })),
    Layer.provideMerge(redis.meterOf(of)),
    Layer.provideMerge(layerBackend(model.scriptOf(of))),
    Layer.provideMerge(layerCircuitBreaker({ failures: breakerFailures, openMs: breakerOpenMs })),
    Layer.provideMerge(queue),
    Layer.provideMerge(AnswerMemory.layer({ maxBytes: 100_663_296 })),
    Layer.provideMerge(layerMetrics),
    Layer.provideMerge(Drain.layer),
    Layer.provideMerge(Layer.effect(PgClient.PgClient, postgres.clientOf(of)))
  )
}

export type Handler = (incoming: IncomingMessage, response: ServerResponse) => void

/** What a test of the inside may ask. */
export interface Running {
  readonly handler: Handler
  /** settlements that wait */
  readonly backlog: () => number
}

/** Starts a gateway. `ready` gets its handler. */
export const startGateway = (of: Process, stores: Stores, ready: (running: Running) => void): void => {
  const start = Effect.gen(function* () {
    const scope = yield* Scope.make()
    const services = yield* Layer.buildWithScope(layerOf(of, stores), scope)
    const app = makeApp({
      trustedProxies: new BlockList(),
      extraSurfaces: new Set(),
      errorBodies: "specification",
      playground: false,
      maxRequestBodyBytes: 262_144,
      numPredictCap: 4096,
      lowersOutput: false,
      numCtxCap: undefined,
      refusesOverflow: false
    })
    const handler = yield* Effect.flatMap(app, (served) =>
      NodeHttpServer.makeHandler(served, { scope })
    ).pipe(
      Effect.provideService(HttpMiddleware.TracerDisabledWhen, () => true),
      Effect.provide(services)
    )
    const { backlog } = Context.get(services, SettlementQueue)
    const run = Effect.runSyncWith(yield* Effect.context<never>())
    ready({ handler, backlog: () => run(backlog) })
  })
  Effect.runForkWith(of.services)(start)
}

/** A request whose head was parsed. Its body comes when the simulation emits it. */
export class Incoming extends IncomingMessage {
  constructor(method: string, url: string, headers: Readonly<Record<string, string>>, address: string) {
    const socket = new Socket()
    Object.defineProperty(socket, "remoteAddress", { value: address })
    super(socket)
    this.method = method
    this.url = url
    this.httpVersion = "1.1"
    this.httpVersionMajor = 1
    this.httpVersionMinor = 1
    for (const [name, value] of Object.entries(headers)) {
      this.headers[name] = value
      this.rawHeaders.push(name, value)
    }
  }

  /** Nothing is read from a socket. */
  override resume(): this {
    return this
  }
}

export interface Reader {
  onHead(status: number, headers: unknown): void
  /** Returns whether the client has room for more. */
  onChunk(text: string): boolean
  onEnd(): void
}

/** The response, as far as its client sees it. */
export class Outgoing extends ServerResponse {
  readonly #reader: Reader
  readonly #decoder = new TextDecoder()

  constructor(incoming: IncomingMessage, reader: Reader) {
    super(incoming)
    this.#reader = reader
  }

  override writeHead(status: number, ...rest: ReadonlyArray<unknown>): this {
    this.#reader.onHead(status, rest.at(-1))
    return this
  }

  override write(chunk: unknown): boolean {
    return this.#reader.onChunk(this.#textOf(chunk))
  }

  override end(chunk?: unknown): this {
    if (chunk !== undefined) this.#reader.onChunk(this.#textOf(chunk))
    this.finished = true
    this.#reader.onEnd()
    return this
  }

  #textOf(chunk: unknown): string {
    return chunk instanceof Uint8Array ? this.#decoder.decode(chunk, { stream: true }) : String(chunk)
  }
}
