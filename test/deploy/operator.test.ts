import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect, Redacted, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { keyShape, prefixOf } from "../../src/domain/Key.ts"
import { writeRuntime } from "../../src/infra/embedded/RuntimeFile.ts"
import { makeFakeBackend } from "../support/FakeBackend.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { failsWith, json, succeeds, tollgate, tollgateWith } from "../cli/tollgate.ts"

layer(TestPostgres, { excludeTestServices: true })("the operator's commands", (it) => {
  it.effect("when a key is created, listed and revoked twice, then its secret is never listed", () =>
    Effect.gen(function* () {
      succeeds(yield* tollgate("create-tenant", "--name", "acme"))
      const created = yield* tollgate("create-key", "--tenant", "acme", "--name", "laptop")
      succeeds(created)
      const secret = created.stdout.trimEnd()
      assert.match(secret, keyShape("tg_"))
      assert.strictEqual(created.stdout, `${secret}\n`)
      assert.notInclude(created.stderr, secret)

      const listed = yield* tollgate("list-keys", "--tenant", "acme")
      succeeds(listed)
      assert.include(listed.stdout, prefixOf(secret))
      assert.include(listed.stdout, "active")
      assert.include(listed.stdout, "laptop")
      assert.notInclude(listed.stdout, secret)

      const first = yield* tollgate("revoke-key", "--prefix", prefixOf(secret))
      succeeds(first)
      const second = yield* tollgate("revoke-key", "--prefix", prefixOf(secret), "--json")
      succeeds(second)
      assert.isTrue((yield* json(Schema.Struct({ already: Schema.Boolean }), second)).already)
      const sql = yield* SqlClient.SqlClient
      const outbox = yield* sql`SELECT id FROM revocations WHERE key_prefix = ${prefixOf(secret)}`
      assert.strictEqual(outbox.length, 1)
      failsWith(yield* tollgate("enable-key", "--prefix", prefixOf(secret)), /revoked and cannot be changed/)
    })
  )

  it.effect(
    "when a tenant is created without limits, then it gets the default ones, and one with limits keeps them",
    () =>
      Effect.gen(function* () {
        const Limits = Schema.Struct({ rpm: Schema.Int, tpm: Schema.Int, concurrent: Schema.Int })
        const plain = yield* tollgate("create-tenant", "--name", "plain", "--json")
        assert.deepStrictEqual(yield* json(Limits, plain), { rpm: 60, tpm: 1_000_000, concurrent: 8 })
        const own = yield* tollgate(
          "create-tenant",
          "--name",
          "own",
          "--rpm",
          "1",
          "--tpm",
          "2147483647",
          "--concurrent",
          "3",
          "--json"
        )
        assert.deepStrictEqual(yield* json(Limits, own), { rpm: 1, tpm: 2_147_483_647, concurrent: 3 })
      })
  )

  it.effect("when a database is unreachable, missing or at a wrong address, then one line says which", () =>
    Effect.gen(function* () {
      const dead = { DATABASE_URL: "postgres://user:hidden-word@127.0.0.1:9/none" }
      const ran = yield* tollgateWith(dead, ["list-tenants"])
      failsWith(ran, /database cannot be reached/)
      assert.notInclude(ran.stderr, "hidden-word")
      failsWith(yield* tollgateWith({}, ["list-tenants"]), /no database: set DATABASE_URL/)
      failsWith(
        yield* tollgateWith({ DATABASE_URL: "hidden-word" }, ["list-tenants"]),
        /DATABASE_URL: got text/
      )
    })
  )

  it.effect("when migrate runs twice, then the schema is there that every other command asks for", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { name, url } = yield* TestDatabase
      const empty = `${name}_empty`
      yield* sql`CREATE DATABASE ${sql(empty)} TEMPLATE template0`
      const DATABASE_URL = Redacted.value(url).replace(name, empty)
      failsWith(yield* tollgateWith({ DATABASE_URL }, ["list-tenants"]), /tollgate migrate/)
      assert.include((yield* tollgateWith({ DATABASE_URL }, ["migrate"])).stdout, "0001_schema")
      assert.include((yield* tollgateWith({ DATABASE_URL }, ["migrate"])).stdout, "up to date")
      assert.include((yield* tollgateWith({ DATABASE_URL }, ["list-tenants"])).stdout, "no tenants")
    })
  )

  it.effect(
    "when models are listed, then they are those the backend has now, with the ones a tenant may use",
    () =>
      Effect.gen(function* () {
        const backend = yield* makeFakeBackend
        const { url } = yield* TestDatabase
        const environment = { DATABASE_URL: Redacted.value(url), BACKEND_URL: backend.url }
        const Models = Schema.Array(
          Schema.Struct({ name: Schema.String, effective: Schema.optionalKey(Schema.Boolean) })
        )
        // Without a tenant no database is needed.
        const live = yield* json(
          Models,
          yield* tollgateWith({ BACKEND_URL: backend.url }, ["list-models", "--json"])
        )
        const [first] = live
        assert.isDefined(first)
        succeeds(yield* tollgate("create-tenant", "--name", "models"))
        succeeds(yield* tollgate("set-models", "--tenant", "models", "--models", `${first?.name},gone:1`))
        const seen = yield* tollgateWith(environment, ["list-models", "--tenant", "models", "--json"])
        assert.deepStrictEqual(
          (yield* json(Models, seen)).filter(({ effective }) => effective).map(({ name }) => name),
          [first?.name]
        )
        failsWith(yield* tollgateWith(environment, ["list-models", "--tenant", "nobody"]), /unknown tenant/)
        failsWith(
          yield* tollgateWith({ BACKEND_URL: "http://127.0.0.1:9" }, ["list-models"]),
          /model server did not answer/
        )
      }).pipe(Effect.scoped)
  )

  it.effect(
    "when a gateway runs in a folder, then a second terminal finds its database there, and ignores a stale file",
    () =>
      Effect.gen(function* () {
        const { socket } = yield* TestDatabase
        const folder = yield* Effect.acquireRelease(
          Effect.promise(() => mkdtemp(path.join(tmpdir(), "tollgate-cli-"))),
          (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
        )
        yield* writeRuntime(folder, { pid: process.pid, database: socket })
        succeeds(yield* tollgateWith({ DATA_DIR: folder }, ["create-tenant", "--name", "second terminal"]))
        yield* writeRuntime(folder, { pid: 2 ** 22 + 1, database: socket })
        failsWith(
          yield* tollgateWith({ DATA_DIR: folder }, ["list-tenants"]),
          /no database: set DATABASE_URL/
        )
      }).pipe(Effect.scoped)
  )
})
