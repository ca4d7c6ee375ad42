/** Connections over TLS that get bytes which are no record of TLS, and are reset after that. */
import { connect } from "node:tls"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { layerPostgres as layerRegistry } from "../../src/admin/postgres.ts"
import { closeBrokenTls } from "../../src/infra/closeBrokenTls.ts"
import { makeFaultProxy } from "../support/FaultProxy.ts"
import { eventually, Fake, generous, layerFake, newKey } from "../support/Gateway.ts"
import { chatWith, makeGatewayProcess } from "../support/GatewayProcess.ts"
import { makeRedis } from "../support/redisTls.ts"
import { freePort } from "../support/servers/processes.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"

it.live(
  "when a connection over TLS has two errors, then it is closed at the first, and nothing is thrown",
  () =>
    Effect.gen(function* () {
      const port = yield* freePort
      const { afterwards, socket } = yield* Effect.scoped(
        Effect.map(closeBrokenTls, () => {
          const socket = connect({ port, host: "127.0.0.1" })
          for (const word of ["damaged", "reset"]) socket.emit("error", new Error(word))
          return { socket, afterwards: socket.destroyed }
        })
      )
      assert.isTrue(afterwards)
      const other = connect({ port, host: "127.0.0.1" })
      assert.strictEqual(
        other.listenerCount("error"),
        socket.listenerCount("error") - 1,
        "the scope is closed"
      )
      other.on("error", () => other.destroy())
    })
)

const layerRegistered = layerRegistry({ defaults: generous }).pipe(Layer.provideMerge(TestPostgres))

it.live(
  "when Redis sends a damaged record of TLS and resets, then the gateway lives, connects again and serves",
  () =>
    Effect.gen(function* () {
      const { file, tlsPort } = yield* makeRedis("no")
      const proxy = yield* makeFaultProxy({ host: "127.0.0.1", port: tlsPort })
      const [backend, database] = [yield* Fake, yield* TestDatabase]
      const { secret } = yield* newKey()
      const gateway = yield* makeGatewayProcess({
        NODE_ENV: "production",
        DATABASE_URL: Redacted.value(database.url),
        REDIS_URL: `rediss://localhost:${proxy.port}?sslrootcert=${file("ca.crt")}`,
        BACKEND_URL: backend.url,
        SHUTDOWN_DRAIN_MS: "0"
      })
      const serves = Effect.map(
        eventually(chatWith(gateway, secret), ({ status }) => status === 200),
        ({ status }) => assert.strictEqual(status, 200, gateway.printed())
      )
      yield* serves
      // Redis closes the connection when the client complains. Here the reset comes first.
      yield* proxy.blackHole("toClient")
      yield* proxy.inject(Buffer.from("no record of TLS, and long enough to be read as one"))
      const printed = yield* eventually(Effect.sync(gateway.printed), (text) => text.includes("ERR_SSL_"))
      assert.include(printed, "ERR_SSL_")
      yield* proxy.reset
      yield* proxy.heal
      yield* serves
      assert.strictEqual(yield* gateway.stop, 0, gateway.printed())
    }).pipe(Effect.scoped, Effect.provide(Layer.mergeAll(layerFake, layerRegistered)))
)
