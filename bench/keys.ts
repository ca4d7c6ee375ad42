/**
 * What it costs to authenticate when each request has another key: the key store on a real Postgres, in this process.
 *
 *     node bench/keys.ts                                  # a throw-away embedded Postgres
 *     DATABASE_URL=postgres://… node bench/keys.ts        # a migrated database; leaves its keys behind
 *
 * `COUNTS=1,1000,10000`, `RATE=1000` authentications a second, `SECONDS=5`.
 */
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Redacted } from "effect"
import { mintKey, prefixOf } from "../src/domain/Key.ts"
import { KeyStore } from "../src/gates/keys/KeyStore.ts"
import { layerPostgres as layerKeyStore } from "../src/gates/keys/postgres.ts"
import { embeddedPostgres } from "../src/infra/embedded/EmbeddedPostgres.ts"
import { migrate } from "../src/infra/Migrations.ts"
import { type DatabaseAddress, layerPostgres } from "../src/infra/Postgres.ts"
import * as Metrics from "../src/observability/Metrics.ts"
import { serverCpu } from "./serverCpu.ts"

const counts = (process.env["COUNTS"] ?? "1,1000,9000,12000").split(",").map(Number)
const perSecond = Number(process.env["RATE"] ?? 1000)
const seconds = Number(process.env["SECONDS"] ?? 5)
const tickMs = 10

/** Stands for argon2, and is counted. */
let verifies = 0
const verify = () => {
  verifies += 1
  return Effect.succeed(true)
}

const addKeys = Effect.fnUntraced(function* (count: number) {
  const pg = yield* PgClient.PgClient
  const secrets = Array.from({ length: count }, () => mintKey("tg_"))
  const name = `bench ${Date.now()}`
  yield* pg`INSERT INTO tenants (name, rpm, tpm, concurrent) VALUES (${name}, 100, 100000, 10)`
  yield* pg`
    INSERT INTO api_keys (tenant_id, name, prefix, hash)
    SELECT (SELECT id FROM tenants WHERE name = ${name}), 'bench', p, '$argon2id$bench'
    FROM jsonb_array_elements_text(${pg.json(secrets.map(prefixOf))}) AS p`
  return secrets
})

const authenticate = Effect.fnUntraced(function* (secrets: ReadonlyArray<string>) {
  const store = yield* KeyStore
  yield* Effect.forEach(secrets, (secret) => store.verify(secret), { concurrency: 100, discard: true })
  verifies = 0
  let [asked, refused, slowest] = [0, 0, 0]
  const [cpu, server] = [process.cpuUsage(), yield* serverCpu]
  const began = performance.now()
  while (performance.now() - began < seconds * 1000) {
    const due = Math.floor(((performance.now() - began) / 1000) * perSecond)
    while (asked < due) {
      const secret = secrets[asked++ % secrets.length] ?? ""
      const startedAt = performance.now()
      yield* store.verify(secret, "192.0.2.1").pipe(
        Effect.tapError(() => Effect.sync(() => (refused += 1))),
        Effect.ignore,
        Effect.ensuring(Effect.sync(() => (slowest = Math.max(slowest, performance.now() - startedAt)))),
        Effect.forkChild({ startImmediately: true })
      )
    }
    yield* Effect.sleep(tickMs)
  }
  const { user, system } = process.cpuUsage(cpu)
  const ofServer = (((yield* serverCpu) - server) * 1e6) / asked
  return { us: (user + system) / asked, ofServer, refused, verifies, slowest }
})

const measure = (url: DatabaseAddress) =>
  Effect.gen(function* () {
    for (const count of counts) {
      const secrets = yield* addKeys(count)
      const { ofServer, refused, slowest, us, verifies } = yield* authenticate(secrets).pipe(
        Effect.provide(
          layerKeyStore({ namespace: "tg_", secretCheck: { verify, places: 200_000, perPrefix: 10 } })
        )
      )
      yield* Effect.logInfo(
        `${count} keys: ${us.toFixed(1)} us of CPU each at ${perSecond}/s, ${ofServer.toFixed(1)} us of Postgres, ` +
          `slowest ${slowest.toFixed(1)} ms, ${verifies} argon2, ${refused} refused`
      )
    }
  }).pipe(Effect.provide(Layer.merge(Metrics.layer, layerPostgres({ url }))))

const throwAway = Effect.gen(function* () {
  const dataDir = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "tollgate-bench-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
  )
  const postgres = yield* embeddedPostgres({ dataDir })
  yield* migrate.pipe(Effect.provide(layerPostgres({ url: postgres, maxConnections: 1 })))
  yield* measure(postgres)
}).pipe(Effect.scoped)

const url = process.env["DATABASE_URL"]
await Effect.runPromise(url === undefined ? throwAway : measure(Redacted.make(url)))
