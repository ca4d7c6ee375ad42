/** A real Redis Cluster of three masters on loopback, thrown away with its scope. */
import { Effect, Schedule } from "effect"
import { Redis } from "ioredis"
import { freePort, TestServerFailed } from "./processes.ts"
import type { RedisBinary } from "./RedisBinary.ts"
import { makeRedisServer } from "./RedisServer.ts"

/** One command on one node; `cause` is what the node said. */
const tell = (url: string, ...words: ReadonlyArray<string>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => new Redis(url, { lazyConnect: true, enableReadyCheck: false })),
    (client) =>
      Effect.tryPromise({
        try: async () => {
          await client.connect()
          const [command = "", ...rest] = words
          return String(await client.call(command, ...rest))
        },
        catch: (cause) => new TestServerFailed({ detail: `${words.join(" ")} failed`, cause })
      }),
    (client) => Effect.sync(() => client.disconnect())
  )

const lastSlot = 16_383
const size = 3

/**
 * Starts the nodes and joins them; about a second, because the nodes have to hear of each other. `words` are further words of
 * a node's command line. `port` of a node is the one that the others and clients of the cluster use.
 */
export const makeRedisCluster = Effect.fnUntraced(function* (
  binary: RedisBinary,
  makeWords: Effect.Effect<
    { readonly port?: number; readonly words: ReadonlyArray<string> },
    TestServerFailed
  > = Effect.succeed({ words: [] })
) {
  const nodes = yield* Effect.forEach(Array.from({ length: size }), () =>
    Effect.gen(function* () {
      const bus = yield* freePort
      const { port, words } = yield* makeWords
      const server = yield* makeRedisServer(binary, [
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        String(bus),
        "--cluster-announce-ip",
        "127.0.0.1",
        "--databases",
        "1",
        ...words
      ])
      return { ...server, bus, port: port ?? server.port }
    })
  )
  const [first] = nodes
  for (const [i, { url, port, bus }] of nodes.entries()) {
    const from = Math.ceil(((lastSlot + 1) / size) * i)
    const to = Math.ceil(((lastSlot + 1) / size) * (i + 1)) - 1
    yield* tell(url, "CLUSTER", "ADDSLOTSRANGE", String(from), String(to))
    if (first !== undefined && i > 0) {
      yield* tell(first.url, "CLUSTER", "MEET", "127.0.0.1", String(port), String(bus))
    }
  }
  yield* Effect.forEach(nodes, ({ url }) =>
    tell(url, "CLUSTER", "INFO").pipe(
      Effect.filterOrFail(
        (info) => info.includes("cluster_state:ok") && info.includes(`cluster_known_nodes:${size}`),
        (info) => new TestServerFailed({ detail: `no cluster yet: ${info}` })
      ),
      Effect.retry({ schedule: Schedule.spaced("50 millis"), times: 200 })
    )
  )
  return nodes
})
