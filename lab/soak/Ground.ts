/** What the soak runs on, and what it hears of its replicas. Redis, too, keeps what it acknowledged when it is killed. */
import { Context, Effect, Layer, Redacted } from "effect"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis } from "../../src/infra/Redis.ts"
import { privateIn } from "../../test/support/invariants/leaks.ts"
import { secrets } from "../../test/support/invariants/Witness.ts"
import { leaseS } from "../scale/World.ts"
import { host, makeServers, type Servers } from "../servers.ts"
import { type Backend, makeBackend } from "./Backend.ts"

export interface Printed {
  lines: number
  /** lines with a key in them, or with the model server's address; an operator may read where his stores are */
  readonly leaks: Array<string>
  /** lines that tell of a defect, or are no log lines at all */
  readonly complaints: Array<string>
}

export class Ground extends Context.Service<
  Ground,
  Servers & {
    readonly backend: Backend
    readonly printed: Printed
    /** host:port of everything a client must not learn of */
    readonly addresses: ReadonlyArray<string>
  }
>()("lab/soak/Ground") {}

const env = {
  LOG_LEVEL: "info",
  MEMORY_MAX_BYTES: "536870912",
  CONCURRENCY_LEASE_S: String(leaseS),
  MODEL_DISCOVERY_REFRESH_S: "2",
  BREAKER_OPEN_MS: "2000",
  BACKEND_FIRST_BYTE_TIMEOUT_MS: "5000",
  BACKEND_IDLE_TIMEOUT_MS: "4000"
}
const durableRedis = ["--appendonly", "yes", "--appendfsync", "everysec"]
const restless = /"level":"(?:error|fatal)"/

export const layerGround = Layer.unwrap(
  Effect.gen(function* () {
    const backend = yield* makeBackend
    const printed: Printed = { lines: 0, leaks: [], complaints: [] }
    const model = new URL(backend.url).host
    const heard = (line: string, wired: string) => {
      printed.lines += 1
      const leaks = privateIn(line, { secrets, addresses: [model, wired] })
      if (leaks.length > 0) printed.leaks.push(`${leaks.join()}: ${line.slice(0, 400)}`)
      if (restless.test(line) || !line.startsWith("{")) printed.complaints.push(line.slice(0, 600))
    }
    const { layer, servers } = yield* makeServers(backend.url, env, { heard, redis: durableRedis })
    const { postgres, redis, wires } = servers
    const addresses = [
      model,
      host(postgres.port),
      host(redis.port),
      ...Object.values(wires).map(({ port }) => host(port))
    ]
    return Layer.mergeAll(
      Layer.succeed(Ground, { ...servers, addresses, backend, printed }),
      layerRedisMeter({ leaseS }).pipe(
        Layer.provide(layerRedis({ url: Redacted.make(redis.url), commandTimeoutMs: 2000 }))
      )
    ).pipe(Layer.provideMerge(layer))
  })
)
