/** Postgres and Redis with TLS, as the operations guide sets it up: real servers, and certificates made here. */
import { copyFileSync, writeFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { inject } from "vitest"
import { Effect, Result, Layer, Redacted, Schema } from "effect"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { explain } from "../../src/observability/explain.ts"
import { describeProblem, readSettings } from "../../src/Settings.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { failsWith, succeeds, tollgateWith } from "../cli/tollgate.ts"
import { makeCertificates } from "../support/certificates.ts"
import { eventually, Fake, generous, layerFake } from "../support/Gateway.ts"
import { chatWith, makeGatewayProcess, readiness } from "../support/GatewayProcess.ts"
import { makePostgresClusterWith, nobody } from "../support/servers/PostgresCluster.ts"
import { makeRedis, reply } from "../support/redisTls.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const owner = process.getuid?.() === 0 ? nobody.uid : undefined

/** `tollgate` needs no certificate, `guarded` needs one of the CA with the name of its role. Plain text is refused. */
const accessRules = `
local all all trust
hostssl guarded all all trust clientcert=verify-full
hostssl all all all trust
`

const makePostgres = Effect.gen(function* () {
  const certificates = yield* makeCertificates
  const { file, give } = certificates
  writeFileSync(file("hba"), accessRules)
  const used = give("server.crt", "postgres.crt", owner)
  const switches = {
    ssl: "on",
    ssl_cert_file: used,
    ssl_key_file: give("server.key", "postgres.key", owner),
    ssl_ca_file: file("ca.crt"),
    hba_file: file("hba"),
    listen_addresses: "127.0.0.1,127.0.0.2"
  }
  const cluster = yield* makePostgresClusterWith(switches, { from: inject("postgres").prepared })
  yield* Effect.gen(function* () {
    yield* sql`CREATE DATABASE tollgate TEMPLATE postgres`
    yield* sql`CREATE DATABASE guarded TEMPLATE postgres`
    // A copy of a database takes longer than a statement of a gateway may.
  }).pipe(
    Effect.provide(
      layerPostgres({ url: cluster.socket("template1"), maxConnections: 1, statementTimeoutMs: 60_000 })
    )
  )
  const url = (parameters: string, host = "localhost", database = "tollgate") =>
    `postgres://tollgate:hidden-word@${host}:${cluster.port}/${database}${parameters}`
  /** The server presents this certificate from now on. */
  const present = (name: string) =>
    Effect.gen(function* () {
      give(`${name}.crt`, "postgres.crt", owner)
      yield* sql`SELECT pg_reload_conf()`
      yield* Effect.sleep("200 millis")
    }).pipe(Effect.provide(layerPostgres({ url: cluster.socket("postgres"), maxConnections: 1 })))
  return { ...certificates, cluster, url, present }
})

const Encrypted = Schema.Array(
  Schema.Struct({ encrypted: Schema.Boolean, client: Schema.NullOr(Schema.String) })
)

const connection = (url: string) =>
  sql`SELECT ssl AS encrypted, client_dn AS client FROM pg_stat_ssl WHERE pid = pg_backend_pid()`.pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Encrypted)),
    Effect.provide(Layer.fresh(layerPostgres({ url: Redacted.make(url), maxConnections: 1 })))
  )

const test = testWith(it.live)

test("when Postgres has TLS, then it is used with the right CA, and every other server is refused, with the code of the fault", function* () {
  const { file, present, url } = yield* makePostgres
  const list = (parameters: string) => tollgateWith({ DATABASE_URL: url(parameters) }, ["list-tenants"])
  const isRefused = Effect.fnUntraced(function* (
    words: RegExp,
    parameters: string,
    host?: string,
    database?: string
  ) {
    const said = explain(yield* Effect.flip(connection(url(parameters, host, database))))
    assert.match(said, words)
    assert.notInclude(said, "hidden-word")
  })
  const ca = `sslrootcert=${file("ca.crt")}`

  for (const mode of ["require", "verify-ca", "verify-full"]) {
    assert.deepStrictEqual(yield* connection(url(`?sslmode=${mode}&${ca}`)), [
      { encrypted: true, client: null }
    ])
    yield* isRefused(/SELF_SIGNED_CERT_IN_CHAIN/, `?sslmode=${mode}&sslrootcert=${file("other.crt")}`)
    yield* isRefused(/SELF_SIGNED_CERT_IN_CHAIN/, `?sslmode=${mode}&sslrootcert=system`)
  }
  succeeds(yield* list(`?sslmode=verify-full&${ca}`))
  failsWith(yield* list(`?sslmode=verify-full&sslrootcert=system`), /SELF_SIGNED_CERT_IN_CHAIN/)
  // Only verify-ca takes a certificate for another name.
  yield* isRefused(/ERR_TLS_CERT_ALTNAME_INVALID/, `?sslmode=verify-full&${ca}`, "127.0.0.2")
  yield* isRefused(/ERR_TLS_CERT_ALTNAME_INVALID/, `?sslmode=require&${ca}`, "127.0.0.2")
  assert.lengthOf(yield* connection(url(`?sslmode=verify-ca&${ca}`, "127.0.0.2")), 1)
  failsWith(yield* list(""), /demands TLS \(sslmode\)/)

  const client = (name: string) => `${ca}&sslcert=${file(`${name}.crt`)}&sslkey=${file(`${name}.key`)}`
  assert.deepStrictEqual(
    yield* connection(url(`?sslmode=verify-full&${client("tollgate")}`, "localhost", "guarded")),
    [{ encrypted: true, client: "/CN=tollgate" }]
  )
  yield* isRefused(/ALERT|client certificate/, `?sslmode=verify-full&${ca}`, "localhost", "guarded")
  yield* isRefused(/ALERT_UNKNOWN_CA/, `?sslmode=verify-full&${client("stranger")}`, "localhost", "guarded")

  yield* present("expired")
  yield* isRefused(/CERT_HAS_EXPIRED/, `?sslmode=verify-full&${ca}`)
})

const isWrong = (env: Readonly<Record<string, string>>, words: RegExp) => {
  const read = readSettings(env)
  const said = Result.isFailure(read) ? read.failure.map(describeProblem).join() : "nothing"
  assert.match(said, words)
  assert.notInclude(said, "hidden-word")
}

test("when a URL names certificates that cannot be used, then the settings are refused and say which", function* () {
  const { file } = yield* makeCertificates
  writeFileSync(file("empty"), "")
  const cases = [
    ["sslmode=prefer", /another sslmode, expected sslmode disable, require, verify-ca or verify-full/],
    ["sslmode=verify-full&sslrootcert=/nowhere", /an sslrootcert that cannot be used/],
    [`sslmode=verify-full&sslrootcert=${file("empty")}`, /an sslrootcert that cannot be used/],
    [`sslmode=verify-full&sslcert=${file("tollgate.crt")}`, /one of sslcert and sslkey/],
    [
      `sslmode=verify-full&sslcert=${file("tollgate.crt")}&sslkey=${file("stranger.key")}`,
      /do not belong together/
    ],
    [
      `sslmode=verify-full&sslcert=${file("tollgate.crt")}&sslkey=${file("ca.crt")}`,
      /an sslkey that cannot be used/
    ],
    [`sslrootcert=${file("ca.crt")}`, /certificates without TLS/],
    [`sslmode=verify-full&sslrotcert=${file("ca.crt")}`, /unknown ssl parameter/]
  ] as const
  for (const [parameters, words] of cases) {
    isWrong({ DATABASE_URL: `postgres://u:hidden-word@db.invalid/x?${parameters}` }, words)
  }
  const redis = `?sslrootcert=/nowhere`
  for (const [REDIS_URL, words] of [
    [`rediss://:hidden-word@a:1${redis}`, /REDIS_URL: got an sslrootcert that cannot be used/],
    [`rediss://:hidden-word@a:1,rediss://b:1`, /REDIS_URL: got text .* of one server, no Redis Cluster/],
    [`redis://:hidden-word@a:1${redis}`, /REDIS_URL: got certificates without TLS/],
    [`rediss://:hidden-word@a:1?tls=false`, /REDIS_URL: got an unknown ssl parameter/]
  ] as const) {
    isWrong({ REDIS_URL }, words)
  }
})

test("when Redis has TLS, then it is used with the right CA and client certificate, and every other server is refused", function* () {
  const { file, present, url } = yield* makeRedis("no")
  const ca = `?sslrootcert=${file("ca.crt")}`
  assert.strictEqual(yield* reply(url(ca)), "PONG")
  assert.include(
    ["SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"],
    yield* reply(url(`?sslrootcert=${file("other.crt")}`))
  )
  assert.include(["SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"], yield* reply(url("")))
  assert.strictEqual(yield* reply(url(ca, "127.0.0.2")), "ERR_TLS_CERT_ALTNAME_INVALID")
  yield* present("expired")
  assert.strictEqual(yield* reply(url(ca)), "CERT_HAS_EXPIRED")

  const strict = yield* makeRedis("yes")
  const client = (name: string) =>
    `?sslrootcert=${strict.file("ca.crt")}&sslcert=${strict.file(`${name}.crt`)}&sslkey=${strict.file(`${name}.key`)}`
  assert.strictEqual(yield* reply(strict.url(client("tollgate"))), "PONG")
  for (const parameters of [`?sslrootcert=${strict.file("ca.crt")}`, client("stranger")]) {
    assert.match(String(yield* reply(strict.url(parameters))), /^(?:ERR_SSL_|ECONNRESET|EPIPE)/)
  }
})

testWith(it.live, layerFake)(
  "when a gateway reaches its stores over TLS, then it serves, takes renewed certificates, and is unready with a wrong CA",
  function* () {
    const [postgres, redis] = [yield* makePostgres, yield* makeRedis("yes")]
    const backend = yield* Fake
    const { secret } = yield* Effect.gen(function* () {
      const registry = yield* Registry
      yield* registry.createTenant({ name: "t", allowAllModels: true })
      return yield* registry.createKey({ tenant: "t", name: "k" })
    }).pipe(
      Effect.provide(
        layerRegistry({ defaults: generous }).pipe(
          Layer.provide(layerPostgres({ url: postgres.cluster.socket("guarded"), maxConnections: 1 }))
        )
      )
    )
    const files = ({ file }: { readonly file: (name: string) => string }, ca: string) =>
      `sslrootcert=${file(ca)}&sslcert=${file("used.crt")}&sslkey=${file("tollgate.key")}`
    for (const { file } of [postgres, redis]) copyFileSync(file("tollgate.crt"), file("used.crt"))
    const start = (ca: string) =>
      makeGatewayProcess({
        NODE_ENV: "production",
        DATABASE_URL: postgres.url(`?sslmode=verify-full&${files(postgres, ca)}`, "localhost", "guarded"),
        REDIS_URL: redis.url(`?${files(redis, ca)}`),
        BACKEND_URL: backend.url,
        SHUTDOWN_DRAIN_MS: "0"
      })
    const gateway = yield* start("ca.crt")
    assert.strictEqual(yield* readiness(gateway), 200, gateway.printed())
    const chat = Effect.map(chatWith(gateway, secret), ({ status }) => status)
    assert.strictEqual(yield* chat, 200)
    const sessions = yield* sql`SELECT DISTINCT s.ssl AS encrypted, s.client_dn AS client
      FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'tollgate'`.pipe(
      Effect.provide(layerPostgres({ url: postgres.cluster.socket("guarded"), applicationName: "test" }))
    )
    assert.deepStrictEqual(
      sessions.map((row) => ({ ...row })),
      [{ encrypted: true, client: "/CN=tollgate" }]
    )

    // Half of a renewal: the key does not fit yet. Then the whole one. New connections are made after each.
    for (const name of ["stranger", "tollgate"]) {
      for (const { file } of [postgres, redis]) copyFileSync(file(`${name}.crt`), file("used.crt"))
      yield* postgres.cluster.stop
      yield* postgres.cluster.start
      assert.strictEqual(yield* readiness(gateway), 200, gateway.printed())
      assert.strictEqual(yield* chat, 200)
    }
    assert.strictEqual(yield* gateway.stop, 0)

    const wrong = yield* start("other.crt")
    assert.strictEqual(yield* readiness(wrong, 503), 503)
    const said = yield* eventually(
      Effect.sync(wrong.printed),
      (text) => text.includes("database does not answer") && text.includes("redis connection error")
    )
    assert.match(said, /database does not answer.*certificate/s)
    assert.match(said, /redis connection error.*(?:SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_VERIFY)/s)
    assert.notInclude(said, "hidden-word")
  }
)
