/** A Redis Cluster with TLS, as the operations guide sets it up: three real servers, and certificates made here. */
import { copyFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { Redis } from "../../src/infra/Redis.ts"
import { tollgateWith } from "../cli/tollgate.ts"
import { makeCertificates } from "../support/certificates.ts"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { fake } from "../support/FakeBackend.ts"
import { eventually, Fake, generous, layerFake, newKey } from "../support/Gateway.ts"
import { chatWith, makeGatewayProcess, readiness } from "../support/GatewayProcess.ts"
import { reply, tlsWords } from "../support/redisTls.ts"
import { freePort } from "../support/servers/processes.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { makeRedisCluster } from "../support/TestRedisCluster.ts"
import { layerPatientRedis } from "../support/TestRedis.ts"
import { testWith } from "../support/testWith.ts"

const layerRegistered = layerRegistry({ defaults: generous }).pipe(Layer.provideMerge(TestPostgres))

/** The data ports take TLS only; the plain ports are the way of this test. */
const makeTlsCluster = Effect.fnUntraced(function* (
  certificate: string,
  announced: ReadonlyArray<string> = []
) {
  const certificates = yield* makeCertificates
  const { file } = certificates
  copyFileSync(file(`${certificate}.crt`), file("redis.crt"))
  const nodes = yield* makeRedisCluster(
    Effect.map(freePort, (port) => ({
      port,
      words: [
        ["tls-port", String(port)],
        ["tls-cluster", "yes"],
        ["tls-replication", "yes"],
        ...tlsWords(file, "yes"),
        announced
      ].flatMap(([name, ...values]) => (name === undefined ? [] : [`--${name}`, ...values]))
    }))
  )
  /** The parameters belong to the first URL, and are those of all nodes. */
  const url = (parameters: string, host: string) =>
    nodes.map(({ port }, i) => `rediss://${host}:${port}${i === 0 ? parameters : ""}`).join(",")
  return { ...certificates, nodes, url }
})

const clientFiles = (file: (name: string) => string, ca: string, client: string) =>
  `?sslrootcert=${file(`${ca}.crt`)}&sslcert=${file(`${client}.crt`)}&sslkey=${file(`${client}.key`)}`

const test = testWith(it.live)

test("when a Redis Cluster has TLS, then every node is used with the right CA and client certificate, and no other way", function* () {
  const { file, nodes, url } = yield* makeTlsCluster("server")
  const good = url(clientFiles(file, "ca", "tollgate"), "127.0.0.1")
  // Keys of three slots, so a command to each node.
  const answers = yield* Effect.gen(function* () {
    const { client, send, servers } = yield* Redis
    yield* eventually(
      Effect.sync(() => client.status),
      (status) => status === "ready"
    )
    for (const key of ["a", "b", "c", "d", "e"]) yield* send("SET", [key, key])
    return {
      masters: (yield* servers).length,
      values: yield* Effect.forEach(["a", "b", "c", "d", "e"], (key) => send("GET", [key]))
    }
  }).pipe(Effect.provide(Layer.fresh(layerPatientRedis(good))))
  assert.deepStrictEqual(answers, { masters: 3, values: ["a", "b", "c", "d", "e"] })
  const sizes = yield* Effect.forEach(nodes, (node) => reply(node.url, "DBSIZE"))
  assert.isAbove(sizes.filter((size) => size !== 0).length, 1)

  const untrusted = ["SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"]
  assert.include(untrusted, yield* reply(url(clientFiles(file, "other", "tollgate"), "127.0.0.1")))
  assert.include(untrusted, yield* reply(url("", "127.0.0.1")))
  for (const parameters of [`?sslrootcert=${file("ca.crt")}`, clientFiles(file, "ca", "stranger")]) {
    assert.match(String(yield* reply(url(parameters, "127.0.0.1"))), /^(?:ERR_SSL_|ECONNRESET|EPIPE)/)
  }
  const REDIS_URL = url(clientFiles(file, "other", "tollgate"), "127.0.0.1")
  const doctor = yield* tollgateWith({ DATABASE_URL: "postgres://127.0.0.1:1/none", REDIS_URL }, ["doctor"])
  assert.match(doctor.stdout, /cache +failed +certificate refused: self.signed certificate/)
})

test("when the nodes of a Redis Cluster are named by host, then the certificates must have that name, not an address", function* () {
  const { file, url } = yield* makeTlsCluster("named", [
    "cluster-announce-hostname",
    "localhost",
    "--cluster-preferred-endpoint-type",
    "hostname"
  ])
  const files = clientFiles(file, "ca", "tollgate")
  assert.strictEqual(yield* reply(url(files, "localhost")), "PONG")
  assert.strictEqual(yield* reply(url(files, "127.0.0.1")), "ERR_TLS_CERT_ALTNAME_INVALID")
})

it.live(
  "when a gateway has its counters and its queue in a Redis Cluster with TLS, then requests are counted, wait and are served",
  () =>
    Effect.gen(function* () {
      const { file, url } = yield* makeTlsCluster("server")
      const [backend, database] = [yield* Fake, yield* TestDatabase]
      const { secret } = yield* newKey()
      backend.always({ does: "stream", lines: [fake.chat("a"), fake.chat("b"), fake.done()], gapMs: 100 })
      const gateway = yield* makeGatewayProcess({
        NODE_ENV: "production",
        DATABASE_URL: Redacted.value(database.url),
        REDIS_URL: url(clientFiles(file, "ca", "tollgate"), "127.0.0.1"),
        BACKEND_URL: backend.url,
        BACKEND_MAX_CONCURRENT: "1",
        SHUTDOWN_DRAIN_MS: "0"
      })
      yield* readiness(gateway)
      const chat = chatWith(gateway, secret)
      // The queue has a connection of its own, which readiness does not ask.
      yield* eventually(chat, ({ status }) => status === 200)
      const answers = yield* Effect.all([chat, chat, chat], { concurrency: "unbounded" })
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [200, 200, 200],
        gateway.printed()
      )
      assert.isAbove(Math.max(...answers.map(({ waitedMs }) => waitedMs)), 100)
      assert.strictEqual(yield* gateway.stop, 0)
    }).pipe(Effect.scoped, Effect.provide(Layer.merge(layerFake, layerRegistered)))
)
