/** A restore as the guide says it: gateways stopped, the dump put back, Redis emptied. Budgets are then those of the dump. */
import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { fake as wire } from "../support/FakeBackend.ts"
import { eventually, Fake, generous, hello, layerFake } from "../support/Gateway.ts"
import { makeGatewayProcess } from "../support/GatewayProcess.ts"
import { blocks, lines, readPaper } from "../support/Paper.ts"
import { makePostgresClusterWith } from "../support/servers/PostgresCluster.ts"
import { findPostgres } from "../support/servers/PostgresTools.ts"
import { layerPrivateRedis, TestRedis } from "../support/TestRedis.ts"

const commands = blocks(readPaper("docs/deploy.md"), "sh").flatMap(lines)
const [dump = "", empty = "", restore = ""] = [/\bpg_dump\b/, /\bDROP DATABASE\b/, /\bpg_restore\b/].map(
  (word) => commands.find((command) => word.test(command))
)

it.live(
  "when an older dump is restored and Redis emptied, then budgets and totals are those of the dump, and go on from there",
  () =>
    Effect.gen(function* () {
      const native = yield* findPostgres
      const cluster = yield* makePostgresClusterWith({}, { installed: native })
      const [fake, redis] = [yield* Fake, yield* TestRedis]
      const url = cluster.url("tollgate")
      const work = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(path.join(tmpdir(), "tgd-"))),
        (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
      )
      const run = (command: string, env: Readonly<Record<string, string>>) => {
        const ran = spawnSync("bash", ["-c", command.replace("docker compose exec -T postgres ", "")], {
          cwd: work,
          encoding: "utf8",
          env: { PATH: `${native}/bin:/usr/bin:/bin`, ...env }
        })
        assert.strictEqual(ran.status, 0, `${command}\n${ran.stderr}`)
        return ran.stdout
      }
      const tools = { PGHOST: "127.0.0.1", PGPORT: new URL(Redacted.value(url)).port }
      const database = layerPostgres({ url, maxConnections: 2 })
      yield* Effect.flatMap(SqlClient.SqlClient, (sql) => sql`CREATE DATABASE tollgate`).pipe(
        Effect.provide(layerPostgres({ url: cluster.url("postgres"), maxConnections: 1 }))
      )
      const { key, secret } = yield* Effect.gen(function* () {
        yield* migrate
        const registry = yield* Registry
        yield* registry.createTenant({ name: "t", allowAllModels: true })
        const created = yield* registry.createKey({ tenant: "t", name: "k" })
        yield* registry.setBudgets(created.key.prefix, { day: 10_000 })
        return created
      }).pipe(Effect.provide(layerRegistry({ defaults: generous }).pipe(Layer.provideMerge(database))))
      const start = makeGatewayProcess({
        NODE_ENV: "production",
        DATABASE_URL: Redacted.value(url),
        REDIS_URL: redis.url,
        BACKEND_URL: fake.url,
        SHUTDOWN_DRAIN_MS: "0"
      }).pipe(
        Effect.tap((gateway) =>
          eventually(
            Effect.promise(() => fetch(`${gateway.url}/readyz`).then((answer) => answer.status)),
            (status) => status === 200
          )
        )
      )
      /** A request of 100 tokens; what the answer says is left. */
      const spend = Effect.fnUntraced(function* (gateway: string) {
        fake.script({
          does: "stream",
          lines: [
            ...Array.from({ length: 60 }, () => wire.chat(" w")),
            wire.done("chat", { prompt_eval_count: 40, eval_count: 60 })
          ]
        })
        return yield* Effect.promise(() =>
          fetch(`${gateway}/api/chat`, {
            method: "POST",
            headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
            body: JSON.stringify(hello({ stream: false }))
          }).then((answer) => answer.text().then((text) => `${answer.status} ${text.slice(0, 200)}`))
        )
      })
      const spent = Effect.gen(function* () {
        const registry = yield* Registry
        const states = yield* registry.showBudgets(key.prefix)
        return JSON.stringify(states)
      }).pipe(Effect.provide(layerRegistry({ defaults: generous }).pipe(Layer.provideMerge(database))))
      const tokens = Effect.map(spent, (text) => Number(/"spent":(\d+)/.exec(text)?.[1]))

      const first = yield* start
      assert.match(yield* spend(first.url), /^200/)
      assert.strictEqual(yield* tokens, 100)
      run(dump, tools)
      assert.match(yield* spend(first.url), /^200/)
      assert.match(yield* spend(first.url), /^200/)
      assert.strictEqual(yield* tokens, 300)
      assert.strictEqual(yield* first.stop, 0)

      run(empty, tools)
      run(restore, tools)
      run(`redis-cli -u ${redis.url} FLUSHALL`, {})
      assert.strictEqual(yield* tokens, 100)
      const second = yield* start
      const left = yield* Effect.promise(() =>
        fetch(`${second.url}/api/chat`, {
          method: "POST",
          headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
          body: JSON.stringify(hello({ stream: false, options: { num_predict: 1 } }))
        }).then(async (answer) => {
          await answer.text()
          return [answer.status, Number(answer.headers.get("x-budget-tokens-remaining"))] as const
        })
      )
      assert.strictEqual(left[0], 200)
      // 100 of the dump, and this request; not the 200 that came after the dump.
      assert.isAbove(left[1], 9700)
      assert.match(yield* spend(second.url), /^200/)
      const rows = yield* Effect.flatMap(
        SqlClient.SqlClient,
        (sql) => sql`SELECT count(*)::int AS rows FROM audit_log WHERE status = 200`
      ).pipe(Effect.provide(database))
      assert.deepStrictEqual(
        rows.map((row) => ({ ...row })),
        [{ rows: 3 }]
      )
      assert.strictEqual(yield* second.stop, 0)
    }).pipe(Effect.scoped, Effect.provide(Layer.merge(layerFake, layerPrivateRedis())))
)
