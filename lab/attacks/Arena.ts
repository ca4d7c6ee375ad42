/**
 * Where attacks are made: a gateway process of any checkout with its default settings, on a real Postgres and a real
 * Redis, in front of a hostile model server. Every attack gets a gateway process of its own, so that its memory is its own.
 */
import { once } from "node:events"
import { Context, Effect, Layer, Redacted, Schema, type Scope } from "effect"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import type { KeyChange } from "../../src/domain/attributes.ts"
import type { EffectiveLimits } from "../../src/domain/Limits.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis } from "../../src/infra/Redis.ts"
import { cpuSecondsOf, processState } from "../../test/support/invariants/processState.ts"
import {
  durable,
  makePostgresClusterWith,
  type PostgresCluster
} from "../../test/support/servers/PostgresCluster.ts"
import { freePort, type TestServerFailed } from "../../test/support/servers/processes.ts"
import { comesTrue } from "../../test/support/wait.ts"
import { count } from "../books.ts"
import { makeReplica, ready } from "../scale/World.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer, type RedisServer } from "../../test/support/servers/RedisServer.ts"
import {
  ArenaFailed,
  attack,
  completed,
  type Env,
  here,
  kept,
  type Key,
  launch,
  type Plan,
  startAttack
} from "./processes.ts"

/** The memory of a gateway, MiB. Under no attack it may take more than `mostMiB` of it. */
const memoryMiB = 512
export const mostMiB = 480

/** The attack is over when the gateway has this much memory: the machine is not only for this. */
const maxMiB = 2048

export interface Victim {
  readonly url: string
  readonly pid: number
  /** the most memory it ever had, MiB; `maxMiB` or more when it was ended for it */
  readonly peakMiB: () => number
  /** seconds of CPU that it has used */
  readonly cpuSeconds: () => number
  /** done when the process has ended, which no attack may bring about */
  readonly gone: Effect.Effect<void>
  /** attacks it to the end, or returns when it has begun */
  readonly attack: (plan: Plan, keys: ReadonlyArray<Key>) => ReturnType<typeof attack>
  readonly startAttack: (plan: Plan, keys: ReadonlyArray<Key>) => ReturnType<typeof startAttack>
}

export class Arena extends Context.Service<
  Arena,
  {
    readonly postgres: PostgresCluster
    readonly redis: RedisServer
    readonly backendUrl: string
    /** a gateway of the checkout under attack */
    readonly victim: Effect.Effect<Victim, TestServerFailed, Scope.Scope>
    /** the same with other settings */
    readonly victimWith: (settings: Env) => Effect.Effect<Victim, TestServerFailed, Scope.Scope>
  }
>()("lab/attacks/Arena") {}

const startVictim = Effect.fnUntraced(function* (checkout: string, env: Env) {
  const { died, kill, pid: pidOf, url } = yield* makeReplica(env, undefined, checkout)
  const pid = pidOf()
  const seen = { peak: 0, cpu: 0, ended: false }
  const look = () => {
    seen.cpu = Math.max(seen.cpu, cpuSecondsOf(pid))
    seen.peak = Math.max(seen.peak, processState(pid)?.peakMiB ?? 0)
  }
  const watched = Effect.suspend(() => {
    look()
    seen.ended ||= seen.peak >= maxMiB
    return seen.ended ? kill : Effect.sleep("50 millis")
  })
  yield* Effect.forkScoped(Effect.repeat(watched, { while: () => !seen.ended }))
  const looked = <A>(read: () => A) => {
    look()
    return read()
  }
  const victim: Victim = {
    url,
    pid,
    attack: (plan, keys) => attack(completed(plan, url, keys)),
    startAttack: (plan, keys) => startAttack(completed(plan, url, keys)),
    peakMiB: () => looked(() => seen.peak),
    cpuSeconds: () => looked(() => seen.cpu),
    gone: Effect.asVoid(comesTrue(() => seen.ended || died(), Number.POSITIVE_INFINITY))
  }
  return victim
})

/** Everything but the gateway, once for all attacks; `checkout` is the folder of the project under attack. */
export const layerArena = (checkout: string) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const postgres = yield* makePostgresClusterWith(durable)
      const redis = yield* makeRedisServer(findRedis())
      const backendPort = yield* freePort
      const backendUrl = `http://127.0.0.1:${backendPort}`
      const backend = yield* kept([process.execPath, here("backend.ts")], { PORT: String(backendPort) })
      backend.stdout?.resume()
      yield* ready(backendUrl)
      const env = {
        NODE_ENV: "production",
        // As in the image and with `npm start`.
        MALLOC_ARENA_MAX: "1",
        MEMORY_MAX_BYTES: String(memoryMiB * 1_048_576),
        DATABASE_URL: Redacted.value(postgres.url("postgres")),
        REDIS_URL: redis.url,
        BACKEND_URL: backendUrl
      }
      // The checkout's own schema.
      const migration = launch([process.execPath, "cli/tollgate.js", "migrate"], env, checkout)
      migration.stdout?.resume()
      yield* Effect.promise(() => once(migration, "exit"))
      if (migration.exitCode !== 0) return yield* new ArenaFailed({ message: "migrate failed" })
      const database = layerPostgres({ url: postgres.socket("postgres"), statementTimeoutMs: 60_000 })
      const victimWith = (settings: Env) => startVictim(checkout, { ...env, ...settings })
      const victim = victimWith({})
      return Layer.mergeAll(
        Layer.succeed(Arena, { postgres, redis, backendUrl, victim, victimWith }),
        layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } }),
        layerRedisMeter({ leaseS: 30 }).pipe(
          Layer.provide(layerRedis({ url: Redacted.make(redis.url), commandTimeoutMs: 2000 }))
        )
      ).pipe(Layer.provideMerge(database))
    })
  )

const wide = { rpm: 1_000_000, tpm: 1_000_000_000, concurrent: 1000 }
let tenants = 0

/** Keys of one new tenant, with these limits each. */
export const newKeys = Effect.fnUntraced(function* (
  count: number,
  limits: Partial<EffectiveLimits> = {},
  budgets: KeyChange = {}
) {
  const registry = yield* Registry
  const tenant = `attack-${++tenants}`
  yield* registry.createTenant({ name: tenant, allowAllModels: true, ...wide, ...limits })
  return yield* Effect.forEach(Array.from({ length: count }), () =>
    Effect.gen(function* () {
      const { key, secret } = yield* registry.createKey({ tenant, name: "k", allowDuplicate: true })
      yield* registry.changeKey(key.prefix, budgets)
      const made: Key = { secret, prefix: key.prefix }
      return made
    })
  )
})

const ModelStats = Schema.Struct({ calls: Schema.Finite, tokens: Schema.Finite, prompt: Schema.Finite })
const decodeStats = Schema.decodeUnknownEffect(
  Schema.fromJsonString(Schema.Record(Schema.String, ModelStats))
)
export type ModelStats = typeof ModelStats.Type

/** What the model server has done for one model so far. */
export const statsOf = Effect.fnUntraced(function* (model: string) {
  const { backendUrl } = yield* Arena
  const text = yield* Effect.promise(() => fetch(`${backendUrl}/stats`).then((response) => response.text()))
  const stats = yield* Effect.orDie(decodeStats(text))
  return stats[model] ?? { calls: 0, tokens: 0, prompt: 0 }
})

/** Rows of the audit log that are not of these keys. */
export const rowsBeside = (keys: ReadonlyArray<Key>) =>
  count(
    (pg) => pg`SELECT count(*)::float8 AS n FROM audit_log
      WHERE key_prefix IS NULL OR NOT key_prefix = ANY(${keys.map(({ prefix }) => prefix)})`
  )

/** Tokens in the ledger of these keys, once none of their requests is open any more; `seconds` at most. */
export const spentBy = Effect.fnUntraced(function* (keys: ReadonlyArray<Key>, seconds = 10) {
  const prefixes = keys.map(({ prefix }) => prefix)
  const open = count(
    (pg) => pg`SELECT count(*)::float8 AS n FROM intents i JOIN api_keys k ON k.id = i.key_id
      WHERE k.prefix = ANY(${prefixes})`
  )
  const until = performance.now() + seconds * 1000
  while ((yield* open) > 0 && performance.now() < until) yield* Effect.sleep("100 millis")
  return yield* count(
    (pg) => pg`SELECT coalesce(sum(tokens_in + tokens_out), 0)::float8 AS n
      FROM ledger l JOIN api_keys k ON k.id = l.key_id WHERE k.prefix = ANY(${prefixes})`
  )
})
