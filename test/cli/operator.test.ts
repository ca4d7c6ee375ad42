import { assert, layer } from "@effect/vitest"
import { Effect, Redacted, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { keyShape, prefixOf } from "../../src/domain/Key.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { type Ran, tollgate, tollgateWith } from "./tollgate.ts"

const succeeds = (ran: Ran) => assert.strictEqual(ran.code, 0, ran.stderr)

/** One line on stderr, nothing on stdout, and no trace of a stack. */
const failsWith = (ran: Ran, expected: RegExp) => {
  assert.notStrictEqual(ran.code, 0)
  assert.strictEqual(ran.stdout, "")
  assert.match(ran.stderr, expected)
  assert.strictEqual(ran.stderr.trimEnd().split("\n").length, 1, ran.stderr)
  assert.notInclude(ran.stderr, "    at ")
}

const json = <A>(schema: Schema.Decoder<A>, ran: Ran) =>
  Schema.decodeEffect(Schema.fromJsonString(schema))(ran.stdout)

const wait = { timeout: 60_000 }

layer(TestPostgres, { excludeTestServices: true })("the operator's commands", (it) => {
  it.effect(
    "a key's life: created, listed without its secret, revoked twice",
    () =>
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
        failsWith(yield* tollgate("enable-key", "--prefix", prefixOf(secret)), /revoked, for good/)
      }),
    wait
  )

  it.effect(
    "a tenant created without limits gets the default ones, one created with them keeps them",
    () =>
      Effect.gen(function* () {
        const Limits = Schema.Struct({ rpm: Schema.Int, tpm: Schema.Int, concurrent: Schema.Int })
        const plain = yield* tollgate("create-tenant", "--name", "plain", "--json")
        assert.deepStrictEqual(yield* json(Limits, plain), { rpm: 60, tpm: 100_000, concurrent: 4 })
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
      }),
    wait
  )

  it.effect(
    "a full key given for a prefix is refused without being repeated",
    () =>
      Effect.gen(function* () {
        const secret = `tg_${"a".repeat(41)}`
        for (const args of [
          ["revoke-key", "--prefix", secret],
          ["revoke-key", secret]
        ]) {
          const ran = yield* tollgate(...args)
          assert.notStrictEqual(ran.code, 0)
          assert.notInclude(ran.stdout + ran.stderr, secret)
        }
      }),
    wait
  )

  it.effect(
    "budgets: any combination is set, shown with what was spent, and taken away",
    () =>
      Effect.gen(function* () {
        succeeds(yield* tollgate("create-tenant", "--name", "budgets"))
        const created = yield* tollgate("create-key", "--tenant", "budgets", "--name", "k")
        const prefix = prefixOf(created.stdout)
        const States = Schema.Array(
          Schema.Struct({ period: Schema.String, budget: Schema.NullOr(Schema.Finite), spent: Schema.Finite })
        )
        const set = yield* tollgate(
          "set-budget",
          "--key",
          prefix,
          "--daily",
          "0",
          "--total",
          "9007199254740991",
          "--json"
        )
        succeeds(set)
        const sql = yield* SqlClient.SqlClient
        yield* sql`
          INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
          SELECT id, tenant_id, d::date, 1, 10, 5 FROM api_keys,
            (VALUES ((now() AT TIME ZONE 'UTC')::date), ('2020-01-01'::date)) AS days (d) WHERE prefix = ${prefix}`
        const shown = yield* tollgate("show-budget", "--key", prefix, "--json")
        assert.deepStrictEqual(yield* json(States, shown), [
          { period: "day", budget: 0, spent: 15 },
          { period: "month", budget: null, spent: 15 },
          { period: "total", budget: 9_007_199_254_740_991, spent: 30 }
        ])
        const cleared = yield* tollgate("set-budget", "--key", prefix, "--daily", "none", "--json")
        assert.deepStrictEqual(
          (yield* json(States, cleared)).map(({ budget }) => budget),
          [null, null, 9_007_199_254_740_991]
        )
        const usage = yield* tollgate("show-usage", "--tenant", "budgets", "--period", "total", "--json")
        const Usage = Schema.Struct({
          requests: Schema.Finite,
          tokens_in: Schema.Finite,
          tokens_out: Schema.Finite
        })
        assert.deepStrictEqual(yield* json(Usage, usage), { requests: 2, tokens_in: 20, tokens_out: 10 })
        const today = yield* tollgate("show-usage", "--tenant", "budgets", "--period", "day")
        assert.match(today.stdout, /budgets\s+day\s+1\s+10\s+5/)
      }),
    wait
  )

  it.effect(
    "models, limits, prompt log, disabling: what is set is what is shown",
    () =>
      Effect.gen(function* () {
        succeeds(yield* tollgate("create-tenant", "--name", "knobs"))
        const created = yield* tollgate(
          "create-key",
          "--tenant",
          "knobs",
          "--name",
          "k",
          "--expires-in",
          "30d",
          "--rpm",
          "7"
        )
        const prefix = prefixOf(created.stdout)
        succeeds(yield* tollgate("set-models", "--tenant", "knobs", "--models", "a:1, b:latest,a:1"))
        const all = yield* tollgate("set-models", "--tenant", "knobs", "--allow-all", "--json")
        const Models = Schema.Struct({
          allowAllModels: Schema.Boolean,
          allowedModels: Schema.Array(Schema.String)
        })
        assert.deepStrictEqual(yield* json(Models, all), {
          allowAllModels: true,
          allowedModels: ["a:1", "b:latest"]
        })
        const none = yield* tollgate(
          "set-models",
          "--tenant",
          "knobs",
          "--no-allow-all",
          "--models",
          "",
          "--json"
        )
        assert.deepStrictEqual(yield* json(Models, none), { allowAllModels: false, allowedModels: [] })

        const Limits = Schema.Struct({ rpm: Schema.NullOr(Schema.Int), tpm: Schema.NullOr(Schema.Int) })
        const key = yield* tollgate("set-limits", "--key", prefix, "--rpm", "none", "--tpm", "9", "--json")
        assert.deepStrictEqual(yield* json(Limits, key), { rpm: null, tpm: 9 })
        const tenant = yield* tollgate("set-limits", "--tenant", "knobs", "--rpm", "11", "--json")
        assert.deepStrictEqual(yield* json(Limits, tenant), { rpm: 11, tpm: 100_000 })

        const logged = yield* tollgate("set-prompt-log", "--key", prefix, "--on", "--retention-days", "7")
        assert.include(logged.stdout, "kept for 7 days")
        succeeds(yield* tollgate("set-prompt-log", "--key", prefix, "--off"))

        assert.include((yield* tollgate("disable-key", "--prefix", prefix)).stdout, "disabled")
        assert.include((yield* tollgate("enable-key", "--prefix", prefix)).stdout, "active")
        assert.include((yield* tollgate("disable-tenant", "--tenant", "knobs")).stdout, "disabled")
        assert.include((yield* tollgate("list-tenants")).stdout, "knobs")
        succeeds(yield* tollgate("enable-tenant", "--tenant", "knobs"))
        const sql = yield* SqlClient.SqlClient
        yield* sql`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE prefix = ${prefix}`
        assert.include((yield* tollgate("list-keys", "--tenant", "knobs")).stdout, "expired")
      }),
    { timeout: 120_000 }
  )

  it.effect(
    "an unreachable database, a missing one and a wrong address are told apart, in one line each",
    () =>
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
      }),
    wait
  )

  it.effect(
    "migrate makes the schema that every other command asks for, and runs twice",
    () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { name, url } = yield* TestDatabase
        const empty = `${name}_empty`
        yield* sql`CREATE DATABASE ${sql(empty)} TEMPLATE template0`
        const DATABASE_URL = Redacted.value(url).replace(name, empty)
        failsWith(yield* tollgateWith({ DATABASE_URL }, ["list-tenants"]), /tollgate migrate/)
        assert.include((yield* tollgateWith({ DATABASE_URL }, ["migrate"])).stdout, "0001_initial")
        assert.include((yield* tollgateWith({ DATABASE_URL }, ["migrate"])).stdout, "up to date")
        assert.include((yield* tollgateWith({ DATABASE_URL }, ["list-tenants"])).stdout, "no tenants")
      }),
    wait
  )

  it.effect(
    "help needs no database and shows examples",
    () =>
      Effect.gen(function* () {
        const ran = yield* tollgateWith({}, ["create-key", "--help"])
        succeeds(ran)
        assert.include(ran.stdout, "--expires-in")
        assert.include(ran.stdout, "tollgate create-key --tenant acme")
        succeeds(yield* tollgateWith({}, []))
        succeeds(yield* tollgateWith({}, ["--version"]))
      }),
    wait
  )
})
