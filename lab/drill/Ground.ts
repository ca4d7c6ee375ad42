/** Two replicas behind the shipped haproxy, with wires that can go bad; Prometheus scrapes them. */
import { Context, Effect, Layer } from "effect"
import { freePort } from "../../test/support/servers/processes.ts"
import { balance } from "../haproxy.ts"
import { makeSlotServer } from "../scale/queue/SlotServer.ts"
import { ready } from "../scale/World.ts"
import { host, makeServers, type Servers } from "../servers.ts"
import { type FastPrometheus, makeFastPrometheus } from "./Prometheus.ts"

export class Ground extends Context.Service<
  Ground,
  Servers & {
    /** of haproxy */
    readonly url: string
    readonly prometheus: FastPrometheus
    /** lines that the replicas wrote to their logs, and forgets them */
    readonly takeLog: () => ReadonlyArray<string>
  }
>()("lab/drill/Ground") {}

/** The defaults, fifteen times shorter, where they decide how long an outage is hidden. */
const env = {
  BACKEND_MAX_CONCURRENT: "4",
  QUEUE_MAX_WAIT_MS: "2000",
  MODEL_DISCOVERY_REFRESH_S: "2",
  MODEL_DISCOVERY_CACHE_TTL_S: "8",
  BREAKER_OPEN_MS: "2000",
  BACKEND_FIRST_BYTE_TIMEOUT_MS: "1000",
  CONCURRENCY_LEASE_S: "5",
  TRUSTED_PROXIES: "127.0.0.1",
  LOG_LEVEL: "warn"
}

export const layerGround = Layer.unwrap(
  Effect.gen(function* () {
    const backend = yield* makeSlotServer(4)
    backend.setServiceMs(30)
    const log: Array<string> = []
    const { layer, servers } = yield* makeServers(backend.url, env, { heard: (line) => void log.push(line) })
    const front = yield* freePort
    const urls = servers.replicas.map((replica) => new URL(replica.url))
    yield* balance(front, [servers.replicas[0].url, servers.replicas[1].url])
    const url = `http://${host(front)}`
    yield* ready(url)
    const prometheus = yield* makeFastPrometheus(urls.map((replica) => replica.host))
    const takeLog = () => log.splice(0)
    return Layer.provideMerge(Layer.succeed(Ground, { ...servers, prometheus, takeLog, url }), layer)
  })
)
