/** `list-keys` and `show-key`: what an operator sees of keys, and why one does not work. */
import { assert, it } from "@effect/vitest"
import { Effect, Redacted, Schema } from "effect"
import { Registry } from "../../src/admin/Registry.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { insert } from "./auditRows.ts"
import { Admin, line, tollgateHere } from "./inProcess.ts"
import { TestDatabase } from "../support/TestPostgres.ts"
import { failsWith, json, succeeds, tollgateWith } from "./tollgate.ts"
import { testWith } from "../support/testWith.ts"

const Keys = Schema.Array(
  Schema.Struct({
    prefix: Schema.String,
    tenant: Schema.String,
    effective: Schema.Struct({ rpm: Schema.Int }),
    budgets: Schema.Array(Schema.Struct({ period: Schema.String, budget: Schema.Int, spent: Schema.Int })),
    last_used: Schema.NullOr(Schema.String),
    tenant_disabled: Schema.Boolean
  })
)

const twoTenants = Effect.gen(function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "one", "--rpm", "7"))
  succeeds(yield* tollgateHere("create-tenant", "--name", "two", "--allow-all-models"))
  const key = Effect.fnUntraced(function* (tenant: string, name: string) {
    const ran = yield* tollgateHere("create-key", "--tenant", tenant, "--name", name)
    succeeds(ran)
    return ran.stdout.trim()
  })
  return [yield* key("one", "laptop"), yield* key("two", "server")] as const
})

const test = testWith(it.effect, Admin)

test("when no tenant is named, then the keys of all are listed, with limits, budgets and last use", function* () {
  const [laptop, server] = yield* twoTenants
  succeeds(yield* tollgateHere("set-budget", "--key", prefixOf(server), "--daily", "5000"))
  yield* insert(prefixOf(server), { status: 429, at: "'2026-11-20T08:30:00Z'::timestamptz", admitted: false })
  const [first, second] = yield* json(Keys, yield* tollgateHere("list-keys", "--json"))
  assert.deepInclude(first, {
    prefix: prefixOf(laptop),
    tenant: "one",
    effective: { rpm: 7 },
    last_used: null
  })
  assert.deepInclude(second, {
    tenant: "two",
    budgets: [{ period: "day", budget: 5000, spent: 0 }],
    last_used: "2026-11-20T08:30:00.000Z"
  })
  const { stdout } = yield* tollgateHere("list-keys")
  assert.match(stdout, /one +laptop +chat,embeddings +7 \/ 100,000 \/ 4 +- +- +- +off/)
  assert.match(stdout, /two +server +\S+ +60 \/ 100,000 \/ 4 +5,000 of 5,000 a day +2026-11-20 08:30/)
  assert.notInclude((yield* tollgateHere("list-keys", "--tenant", "one")).stdout, "server")
})

test("when a key cannot work, then show-key says why", function* () {
  const [laptop] = yield* twoTenants
  const prefix = prefixOf(laptop)
  const shown = yield* tollgateHere("show-key", "--prefix", prefix)
  succeeds(shown)
  assert.match(shown.stdout, /requests a minute +7 \(the tenant's\)/)
  assert.match(shown.stderr, /may use no model: every model request gets 403/)
  succeeds(yield* tollgateHere("disable-tenant", "--tenant", "one"))
  succeeds(yield* tollgateHere("set-budget", "--key", prefix, "--total", "0"))
  const { stderr } = yield* tollgateHere("show-key", "--prefix", prefix)
  assert.match(stderr, /The tenant is disabled: every request gets 401/)
  assert.match(stderr, /The budget \(total\) is spent/)
  succeeds(yield* tollgateHere("revoke-key", "--prefix", prefix))
  assert.match((yield* tollgateHere("show-key", "--prefix", prefix)).stderr, /The key is revoked/)
  failsWith(yield* tollgateHere("show-key"), /--prefix must be given, or --key-from-stdin, but not both/)
  failsWith(yield* tollgateHere("show-key", "--prefix", "tg_000000000"), /unknown key prefix tg_000000000/)
})

test("when a whole key is given for a prefix, then it is taken, and its secret is nowhere", function* () {
  const [laptop] = yield* twoTenants
  for (const args of [
    ["show-key", "--prefix", laptop],
    ["set-budget", "--key", laptop, "--daily", "5"],
    ["disable-key", "--prefix", laptop]
  ]) {
    const ran = yield* tollgateHere(...args)
    succeeds(ran)
    assert.notInclude(ran.stdout + ran.stderr, laptop.slice(12))
  }
  const unknown = yield* tollgateHere("show-key", "--prefix", `tg_000000000${laptop.slice(12)}`)
  failsWith(unknown, /unknown key prefix tg_000000000$/m)
  failsWith(yield* tollgateHere("show-budget", "--key", "bad"), /no key has the prefix or the name "bad"$/m)
  // A key that was not copied whole.
  const cut = yield* tollgateHere("show-budget", "--key", laptop.slice(0, 40))
  failsWith(cut, new RegExp(`no key has the prefix or the name "${laptop.slice(0, 12)}…"`))
})

test("when a key is created with --json, then nothing but the JSON is printed", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "one"))
  const ran = yield* tollgateHere("create-key", "--tenant", "one", "--name", "x", "--json")
  succeeds(ran)
  assert.strictEqual(ran.stderr, "")
  yield* json(Schema.Struct({ secret: Schema.String, prefix: Schema.String }), ran)
  failsWith(
    yield* line("create-key --tenant one --name x --expires-in 5d --expires-at 2030-01-01"),
    /--expires-at must be left out when --expires-in is given/
  )
  failsWith(yield* tollgateHere("create-tenant", "--name"), /^tollgate: --name needs a value \(see/)
  const { url } = yield* TestDatabase
  const shown = (input: string) =>
    tollgateWith({ DATABASE_URL: Redacted.value(url) }, ["show-key", "--key-from-stdin"], input)
  const { secret } = yield* json(Schema.Struct({ secret: Schema.String }), ran)
  for (const input of [secret, `${secret}\nmore\n`]) {
    const { stdout } = yield* shown(input)
    assert.match(stdout, /^prefix +tg_/)
    assert.notInclude(stdout, secret.slice(12))
  }
  for (const input of ["", "no key", `${secret}x`])
    failsWith(yield* shown(input), /--key-from-stdin must be given with one key on stdin/)
})

const Named = Schema.Array(Schema.Struct({ prefix: Schema.String, name: Schema.String }))

test("when a key is named by its name, then the only live key of that name is meant, and others are candidates", function* () {
  const registry = yield* Registry
  for (const name of ["one", "two"]) succeeds(yield* tollgateHere("create-tenant", "--name", name))
  const make = Effect.fnUntraced(function* (tenant: string, name: string) {
    return (yield* registry.createKey({ tenant, name })).key.prefix
  })
  const [zoe, anna, gone] = [
    yield* make("one", "zoe"),
    yield* make("one", "anna"),
    yield* make("two", "anna")
  ]
  const show = (...args: ReadonlyArray<string>) => tollgateHere("show-key", ...args)
  failsWith(
    yield* show("--key", "anna"),
    new RegExp(
      `2 keys are named "anna": give the prefix of one: ${anna} \\(anna of one\\), ${gone} \\(anna of two\\)`
    )
  )
  yield* registry.revokeKey(gone)
  assert.match((yield* show("--key", "anna")).stdout, new RegExp(anna))
  assert.match((yield* show("--prefix", zoe)).stdout, new RegExp(zoe))
  failsWith(
    yield* show("--key", "ann"),
    new RegExp(`no key has .* "ann"; did you mean ${anna} \\(anna of one\\)`)
  )
  for (const args of [
    ["set-budget", "--daily", "5"],
    ["set-limits", "--rpm", "5"],
    ["show-budget"],
    ["set-end-user", "--header", "X-User"],
    ["set-prompt-log", "--on"],
    ["show-prompt-log"],
    ["erase-prompt-log"],
    ["requests"],
    ["move-key", "--tenant", "two"],
    ["disable-key"],
    ["enable-key"],
    ["rotate-key"]
  ]) {
    const [command = "", ...more] = args
    const ran = yield* tollgateHere(command, "--key", "zoe", ...more, "--json")
    succeeds(ran)
    assert.isTrue(command === "rotate-key" || (yield* registry.listKeys("two")).length < 4, command)
  }
  failsWith(yield* tollgateHere("revoke-key", "--key", "zoe"), /2 keys are named "zoe"/)
})

test("when keys are listed, then by name, and those that are asked for by name, status and end", function* () {
  const registry = yield* Registry
  succeeds(yield* tollgateHere("create-tenant", "--name", "t"))
  const day = 86_400_000
  for (const [name, days] of [
    ["Zoe", 10],
    ["anna", 40],
    ["Hanna", undefined],
    ["old", 20]
  ] as const)
    yield* registry.createKey({
      tenant: "t",
      name,
      ...(days === undefined ? {} : { expiresInMs: days * day })
    })
  const names = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
    return (yield* json(Named, yield* tollgateHere("list-keys", "--json", ...args))).map(({ name }) => name)
  })
  const old = (yield* registry.listKeys("t", { name: "old" }))[0]?.prefix ?? ""
  yield* registry.revokeKey(old)
  assert.deepStrictEqual((yield* names()).toSorted(), ["Hanna", "Zoe", "anna", "old"])
  assert.sameOrderedMembers(yield* names("--name", "anna", "--tenant", "t"), yield* names("--name", "ANNA"))
  assert.lengthOf(yield* names("--name", "anna"), 2)
  assert.deepStrictEqual(yield* names("--status", "revoked"), ["old"])
  assert.deepStrictEqual(yield* names("--expiring", "30d"), ["Zoe"])
  assert.lengthOf(yield* names("--expiring", "9w", "--status", "active"), 2)
})
