/** A real Redis master, its replica, and three sentinels that watch them, on loopback, thrown away with the scope. */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Context, Effect, Layer, Schedule } from "effect"
import { Redis } from "ioredis"
import { inject } from "vitest"
import { findRedis } from "./servers/RedisBinary.ts"
import { freePort, TestServerFailed } from "./servers/processes.ts"
import { makeRedisServer, type RedisServer, tied } from "./servers/RedisServer.ts"
import { TestRedis } from "./TestRedis.ts"

export class TestSentinels extends Context.Service<
  TestSentinels,
  {
    /** the first one */
    readonly master: RedisServer
    /** port of the master, as a sentinel sees it now */
    readonly masterPort: Effect.Effect<number, TestServerFailed>
  }
>()("test/TestSentinels") {}

const name = "mymaster"

const tell = (port: number, ...words: ReadonlyArray<string>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => new Redis({ port, lazyConnect: true, enableReadyCheck: false, retryStrategy: null })),
    (client) =>
      Effect.tryPromise({
        try: async () => {
          await client.connect()
          const [command = "", ...rest] = words
          return [await client.call(command, ...rest)].flat().map(String)
        },
        catch: (cause) => new TestServerFailed({ detail: `${words.join(" ")} failed`, cause })
      }),
    (client) => Effect.sync(() => client.disconnect())
  )

const password = "of the server"

/** A sentinel writes what it learns into its own file. */
const sentinel = Effect.fnUntraced(function* (command: string, libraries: string, master: number) {
  const port = yield* freePort
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(path.join(tmpdir(), "tgs-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
  )
  const file = path.join(folder, "sentinel.conf")
  writeFileSync(
    file,
    [
      `port ${port}`,
      "bind 127.0.0.1",
      `dir ${folder}`,
      `sentinel monitor ${name} 127.0.0.1 ${master} 2`,
      `sentinel auth-pass ${name} "${password}"`,
      `sentinel down-after-milliseconds ${name} 500`,
      `sentinel failover-timeout ${name} 2000`,
      ""
    ].join("\n")
  )
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const [program = command, ...words] = [...tied, command, file, "--sentinel"]
      return spawn(program, words, {
        env: { ...process.env, LD_LIBRARY_PATH: libraries },
        stdio: "ignore"
      })
    }),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )
  return port
})

/** About two seconds: the sentinels have to find each other. Its `url` is what the gateway takes. */
export const layerRedisSentinels: Layer.Layer<TestRedis | TestSentinels, TestServerFailed> =
  Layer.effectContext(
    Effect.gen(function* () {
      const { command, libraries } = inject("redis")
      const binary = command === "" ? findRedis() : { command, libraries }
      const secured = ["--requirepass", password, "--masterauth", password, "--repl-diskless-sync-delay", "0"]
      const master = yield* makeRedisServer(binary, secured)
      yield* makeRedisServer(binary, [...secured, "--replicaof", "127.0.0.1", String(master.port)])
      const ports = yield* Effect.forEach([1, 2, 3], () =>
        sentinel(binary.command, binary.libraries, master.port)
      )
      yield* Effect.forEach(ports, (port) =>
        tell(port, "SENTINEL", "CKQUORUM", name).pipe(
          Effect.andThen(tell(port, "SENTINEL", "REPLICAS", name)),
          Effect.filterOrFail(
            (replicas) => replicas.join(",").includes("master-link-status,ok"),
            () => new TestServerFailed({ detail: "the sentinels know no replica" })
          ),
          Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 200 })
        )
      )
      const hosts = ports.map((port) => `127.0.0.1:${port}`).join(",")
      const masterPort = tell(ports[0] ?? 0, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name).pipe(
        Effect.map(([, port]) => Number(port))
      )
      return Context.make(TestRedis, {
        url: `redis+sentinel://:${encodeURIComponent(password)}@${hosts}/${name}`
      }).pipe(Context.add(TestSentinels, { master, masterPort }))
    })
  )
