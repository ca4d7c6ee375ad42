import { assert, it } from "@effect/vitest"
import { Schema } from "effect"
import { prefixOf } from "../../src/domain/Key.ts"
import { insert } from "./auditRows.ts"
import { Admin, fileOf, line, tollgateHere } from "./inProcess.ts"
import { json, succeeds } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const test = testWith(it.effect, Admin)

test("when any combination of budgets is set, then it is shown with what was spent, and can be taken away", function* () {
  succeeds(yield* line("create-tenant --name budgets"))
  const created = yield* line("create-key --tenant budgets --name k")
  const prefix = prefixOf(created.stdout)
  const States = Schema.Array(
    Schema.Struct({ period: Schema.String, budget: Schema.NullOr(Schema.Finite), spent: Schema.Finite })
  )
  const set = yield* line(`set-budget --key ${prefix} --daily 0 --total 9007199254740991 --json`)
  succeeds(set)
  yield* sql`
        INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
        SELECT id, tenant_id, d::date, 1, 10, 5 FROM api_keys,
          (VALUES ((now() AT TIME ZONE 'UTC')::date), ('2020-01-01'::date)) AS days (d) WHERE prefix = ${prefix}`
  const shown = yield* line(`show-budget --key ${prefix} --json`)
  assert.deepStrictEqual(yield* json(States, shown), [
    { period: "day", budget: 0, spent: 15 },
    { period: "week", budget: null, spent: 15 },
    { period: "month", budget: null, spent: 15 },
    { period: "total", budget: 9_007_199_254_740_991, spent: 30 }
  ])
  const cleared = yield* line(`set-budget --key ${prefix} --daily none --json`)
  assert.deepStrictEqual(
    (yield* json(States, cleared)).map(({ budget }) => budget),
    [null, null, null, 9_007_199_254_740_991]
  )
  const usage = yield* line("show-usage --tenant budgets --period total --json")
  const Usage = Schema.Struct({
    requests: Schema.Finite,
    tokens_in: Schema.Finite,
    tokens_out: Schema.Finite
  })
  assert.deepStrictEqual(yield* json(Usage, usage), { requests: 2, tokens_in: 20, tokens_out: 10 })
  const today = yield* line("show-usage --tenant budgets --period day")
  assert.match(today.stdout, /budgets\s+day\s+1\s+10\s+0\s+5/)
})

test("when models, limits, prompt log or disabling are set, then they are shown as they were set", function* () {
  succeeds(yield* line("create-tenant --name knobs"))
  const created = yield* line("create-key --tenant knobs --name k --expires-in 30d --rpm 7")
  const prefix = prefixOf(created.stdout)
  succeeds(yield* tollgateHere("set-models", "--tenant", "knobs", "--models", "a:1, b:latest,a:1"))
  const all = yield* line("set-models --tenant knobs --allow-all --json")
  const Models = Schema.Struct({
    allow_all_models: Schema.Boolean,
    allowed_models: Schema.Array(Schema.String)
  })
  assert.deepStrictEqual(yield* json(Models, all), {
    allow_all_models: true,
    allowed_models: ["a:1", "b:latest"]
  })
  const none = yield* line("set-models --tenant knobs --no-allow-all --yes --json --models ")
  assert.deepStrictEqual(yield* json(Models, none), { allow_all_models: false, allowed_models: [] })

  const Limits = Schema.Struct({ rpm: Schema.NullOr(Schema.Int), tpm: Schema.NullOr(Schema.Int) })
  const key = yield* line(`set-limits --key ${prefix} --rpm none --tpm 9 --json`)
  assert.deepStrictEqual(yield* json(Limits, key), { rpm: null, tpm: 9 })
  const tenant = yield* line("set-limits --tenant knobs --rpm 11 --weight 3 --json")
  assert.deepStrictEqual(yield* json(Limits, tenant), { rpm: 11, tpm: 100_000 })

  const logged = yield* line(`set-prompt-log --key ${prefix} --on --retention-days 7`)
  assert.include(logged.stdout, "kept for 7 days")
  succeeds(yield* line(`set-prompt-log --key ${prefix} --off`))

  assert.include((yield* line(`disable-key --prefix ${prefix}`)).stdout, "disabled")
  assert.include((yield* line(`enable-key --prefix ${prefix}`)).stdout, "active")
  assert.include((yield* line("disable-tenant --tenant knobs")).stdout, "disabled")
  assert.include((yield* line("list-tenants")).stdout, "knobs")
  succeeds(yield* line("enable-tenant --tenant knobs"))
  yield* sql`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE prefix = ${prefix}`
  assert.include((yield* line("list-keys --tenant knobs")).stdout, "expired")
})

test("when nothing is to migrate, then the plan says so, and migrating changes nothing", function* () {
  assert.include((yield* line("migrate --plan")).stdout, "it is up to date: nothing to do\n")
  assert.include((yield* line("migrate")).stdout, "the database is up to date")
})

test("when a key has limits of each user, then they are shown, exported and removed, and need a header", function* () {
  succeeds(yield* line("create-tenant --name people"))
  const prefix = prefixOf((yield* line("create-key --tenant people --name k")).stdout)
  const eachUser = (command: string, ...options: ReadonlyArray<string>) =>
    tollgateHere(command, "--key", prefix, "--each-user", ...options)
  const refused = yield* eachUser("set-limits", "--rpm", "5")
  assert.include(
    refused.stderr,
    "--each-user must be used with a key that has a header for its end users: set-end-user sets one"
  )
  assert.strictEqual(refused.code, 1)
  succeeds(yield* line(`set-end-user --key ${prefix} --header X-User`))

  const set = yield* eachUser("set-limits", "--rpm", "5", "--concurrent", "2")
  assert.match(set.stdout, /OF\s+RPM\s+TPM\s+CONCURRENT\s+DAILY\s+WEEKLY\s+MONTHLY\s+TOTAL\neach user\s+5\s/)
  assert.include(set.stderr, "--each-user --rpm was none and is 5")
  succeeds(yield* eachUser("set-budget", "--daily", "20k"))
  const shown = yield* line(`show-key --prefix ${prefix}`)
  assert.match(shown.stdout, /each user\s+rpm 5\n.*each user\s+concurrent 2\n.*each user\s+daily 20,000/)
  // The key keeps its own.
  assert.match(shown.stdout, /requests a minute\s+60 \(the tenant's\)/)
  const exported = yield* line("export")
  assert.match(exported.stdout, /each_user_rpm: 5[^]*each_user_daily: 20000/)

  const kept = yield* line(`set-end-user --key ${prefix} --header none`)
  assert.match(kept.stderr, /--header must be kept while the key has limits or budgets of each user/)
  succeeds(yield* eachUser("set-limits", "--rpm", "none", "--concurrent", "none"))
  succeeds(yield* eachUser("set-budget", "--daily", "none"))
  succeeds(yield* line(`set-end-user --key ${prefix} --header none`))
  assert.notInclude((yield* line(`show-key --prefix ${prefix}`)).stdout, "each user")
})

test("when one end user of a key has rules, then its name is checked, and they are shown, stored, exported and applied", function* () {
  succeeds(yield* line("create-tenant --name persons"))
  const prefix = prefixOf(
    (yield* line("create-key --tenant persons --name webui --end-user-header X-User")).stdout
  )
  for (const endUser of ["Ada@example.com", "zoe"]) yield* insert(prefix, { endUser })
  const of = (user: string, command: string, ...options: ReadonlyArray<string>) =>
    tollgateHere(command, "--key", prefix, "--user", user, ...options)
  const typed = yield* of("ada", "set-limits", "--rpm", "5")
  assert.include(typed.stderr, "did you mean Ada@example.com? (--yes takes any name)")
  assert.include((yield* of("zeo", "block-user")).stderr, "did you mean zoe?")
  assert.include((yield* of("", "block-user", "--yes")).stderr, "--user must be a name")
  assert.include(
    (yield* of("zoe", "set-limits", "--priority", "batch")).stderr,
    "--priority must be given without --user"
  )
  assert.include((yield* of("zoe", "set-limits", "--rpm", "0")).stderr, "--rpm must be a whole number from 1")
  assert.include(
    (yield* line("set-limits --tenant persons --user zoe --rpm 5")).stderr,
    "--user must be given with --key"
  )

  const set = yield* of(" Ada@example.com ", "set-limits", "--rpm", "5")
  assert.match(set.stdout, /OF\s+RPM\s.*\nAda@example.com\s+5\s/)
  assert.include(set.stderr, "--rpm was that of each user and is 5")
  succeeds(yield* of("zoe", "block-user"))
  succeeds(yield* of("new one", "set-budget", "--daily", "20k", "--yes"))
  assert.match((yield* of("new one", "show-budget")).stdout, /day\s+20,000\s/)
  // A rotated key has the same users.
  const rotated = prefixOf((yield* line(`rotate-key --prefix ${prefix} --grace 7d`)).stdout)
  succeeds(yield* tollgateHere("unblock-user", "--key", rotated, "--user", "zoe"))
  const rules = yield* sql`SELECT prefix, user_rules FROM api_keys WHERE name = 'webui' ORDER BY created_at`
  const expected = { "Ada@example.com": { rpm: 5 }, "new one": { daily: 20_000 } }
  assert.deepStrictEqual(
    rules.map((row) => ({ ...row })),
    [prefix, rotated].map((prefix) => ({ prefix, user_rules: expected }))
  )
  const exported = yield* line("export")
  assert.match(exported.stdout, /user_rules:\n\s+- name: new one\n\s+daily: 20000/)
  const file = (rules: string) => {
    const keys = `[{prefix: ${prefix}, user_rules: ${rules}}]`
    return tollgateHere("apply", "-f", fileOf(`version: 1\ntenants: [{name: persons, keys: ${keys}}]\n`))
  }
  assert.include(
    (yield* file("[{name: Ada@example.com, rpm: 5}, {name: new one, daily: 20000}]")).stdout,
    "nothing to change"
  )
  assert.include((yield* file("[{name: zoe, blocked: true, rps: 1}]")).stderr, "there is no such field")
  assert.include((yield* line(`set-end-user --key ${prefix} --header none`)).stderr, "or rules of one user")

  succeeds(yield* line(`set-end-user --key ${prefix} --header X-User --hash-users on`))
  const [hashed] = yield* sql`SELECT user_rules::text AS rules FROM api_keys WHERE prefix = ${prefix}`
  assert.match(String(hashed?.["rules"]), /^\{"sha256:\w{32}": \{.*\}, "sha256:\w{32}": \{.*\}\}$/)
  succeeds(yield* of("new one", "set-budget", "--daily", "none"))
  const [left] = yield* sql`SELECT user_rules FROM api_keys WHERE prefix = ${prefix}`
  assert.deepStrictEqual(Object.values(Object(left?.["user_rules"])), [{ rpm: 5 }])
})
