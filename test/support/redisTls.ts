/** A Redis with TLS, and what a client of it gets. */
import { copyFileSync } from "node:fs"
import { Effect, Layer, Schedule } from "effect"
import { inject } from "vitest"
import { codeOf } from "../../src/infra/errorCode.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { makeCertificates } from "./certificates.ts"
import { freePort } from "./servers/processes.ts"
import { findRedis } from "./servers/RedisBinary.ts"
import { makeRedisServer } from "./servers/RedisServer.ts"
import { layerPatientRedis } from "./TestRedis.ts"

export const binary = () => {
  const { command, libraries } = inject("redis")
  return command === "" ? findRedis() : { command, libraries }
}

export const tlsWords = (file: (name: string) => string, clients: "no" | "yes") => [
  ["tls-cert-file", file("redis.crt")],
  ["tls-key-file", file("server.key")],
  ["tls-ca-cert-file", file("ca.crt")],
  ["tls-auth-clients", clients]
]

export const makeRedis = Effect.fnUntraced(function* (clients: "no" | "yes") {
  const certificates = yield* makeCertificates
  const { file } = certificates
  const tlsPort = yield* freePort
  copyFileSync(file("server.crt"), file("redis.crt"))
  const words = [
    ["bind", "127.0.0.1", "127.0.0.2"],
    ["tls-port", String(tlsPort)],
    ...tlsWords(file, clients)
  ]
  // The plain port is the way of this test.
  const server = yield* makeRedisServer(
    binary(),
    words.flatMap(([name = "", ...values]) => [`--${name}`, ...values])
  )
  const present = Effect.fnUntraced(function* (name: string) {
    copyFileSync(file(`${name}.crt`), file("redis.crt"))
    yield* reply(server.url, "CONFIG", "SET", "tls-cert-file", file("redis.crt"))
  })
  return {
    ...certificates,
    present,
    tlsPort,
    url: (parameters: string, host = "localhost") => `rediss://${host}:${tlsPort}${parameters}`
  }
})

/** The answer to a command, or the code of the error that prevents a connection. */
export const reply = (url: string, command = "PING", ...words: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const { client, send } = yield* Redis
    let code = "no error"
    client.on("error", (error) => (code = codeOf(error) ?? code))
    return yield* send(command, words).pipe(
      Effect.retry({ schedule: Schedule.spaced("20 millis"), times: 50 }),
      Effect.catchTag("RedisFailed", () => Effect.succeed(code))
    )
  }).pipe(Effect.provide(Layer.fresh(layerPatientRedis(url))))
