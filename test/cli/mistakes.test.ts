/** No costly mistake in silence: what commands say before and after a change, and what they refuse. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Option, Schema } from "effect"
import { TestConsole } from "effect/testing"
import { readNumber } from "../../cli/flags.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { Backend } from "../../src/backend/Backend.ts"
import { grantOf } from "../../src/domain/Caller.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { call, eventually, hello, layerGateway, newKey } from "../support/Gateway.ts"
import { guards } from "../../src/backend/ollama/guards/guards.ts"
import { modelNamed } from "../support/permits.ts"
import { Admin, tollgateHere, tollgateWith, tollgateWithModels } from "./inProcess.ts"
import { failsWith, json, succeeds } from "./tollgate.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const withModels = tollgateWithModels("a:1", "b:latest")

it("when a number is written as people write it, then it is read, and nothing that is unclear", () => {
  for (const [text, value] of [
    ["1000000", 1_000_000],
    ["1_000_000", 1_000_000],
    ["1,000,000", 1_000_000],
    ["1M", 1_000_000],
    ["1.5M", 1_500_000],
    ["20k", 20_000],
    ["2G", 2_000_000_000],
    ["0", 0]
  ] as const)
    assert.deepStrictEqual(readNumber(text), Option.some(value), text)
  for (const text of [
    "",
    "M",
    "1m",
    "1,5",
    "1,00",
    "1_00",
    "1.000",
    "1.5",
    "-1",
    "1e6",
    "1 000",
    "9007199254740992",
    "1.0000001M"
  ])
    assert.isTrue(Option.isNone(readNumber(text)), text)
})

const test = testWith(it.effect, Admin)

test("when an allowlist changes, then what goes and comes is named, and the last usable model goes only with --yes", function* () {
  succeeds(yield* withModels("create-tenant", "--name", "t"))
  const set = (...args: ReadonlyArray<string>) => withModels("set-models", "--tenant", "t", ...args)
  const registry = yield* Registry
  const listed = Effect.map(registry.showTenant("t"), ({ allowedModels }) => allowedModels)
  assert.match((yield* set("--models", "a:1,b")).stderr, /^Added: a:1, b$/m)
  failsWith(
    yield* set("--add", "ga:1"),
    /--add must be models of the model server, and ga:1 is none; did you mean a:1, b:latest\?/
  )
  failsWith(yield* set("--models", "a1"), /--models must be models [^;]*a1 is none; did you mean a:1/)
  assert.match((yield* set("--add", "gone:1,a:1", "--yes")).stderr, /^Added: gone:1$/m)
  const removed = yield* set("--remove", "b:latest")
  assert.match(removed.stderr, /^Removed: b$/m)
  assert.deepStrictEqual(yield* listed, ["a:1", "gone:1"])
  failsWith(yield* set("--remove", "c"), /--remove must be models of the allowlist, and c is none/)
  failsWith(yield* set("--models", "a:1", "--add", "b"), /--models must be given without --add and --remove/)
  failsWith(yield* set("--models", "none"), /--models must be names of models: "" allows none/)
  for (const mistake of [
    ["--models", ""],
    ["--remove", "a:1"]
  ])
    failsWith(yield* set(...mistake), /--yes must be given too, because the tenant could use no model then/)
  assert.deepStrictEqual(yield* listed, ["a:1", "gone:1"])
  succeeds(yield* set("--remove", "a:1", "--yes"))
  // Nothing usable is lost any more.
  succeeds(yield* set("--models", ""))
  succeeds(yield* set("--allow-all"))
  failsWith(yield* set("--no-allow-all"), /--yes must be given too/)
})

test("when a key or a tenant is changed, then it is said whom it hits and what was before", function* () {
  succeeds(yield* tollgateHere("create-tenant", "--name", "acme", "--rpm", "1_000"))
  const make = (name: string, ...more: ReadonlyArray<string>) =>
    Effect.map(tollgateHere("create-key", "--tenant", "acme", "--name", name, ...more), ({ stdout }) =>
      prefixOf(stdout.trim())
    )
  const [laptop, ci] = [yield* make("laptop"), yield* make("ci", "--rpm", "5")]
  const limits = yield* tollgateHere("set-limits", "--tenant", "acme", "--rpm", "2k")
  assert.strictEqual(
    limits.stderr,
    "--rpm was 1,000 and is 2,000\nIt holds for 1 active key of the tenant; 1 with limits of their own keep them.\n"
  )
  const own = yield* tollgateHere("set-limits", "--prefix", laptop, "--tpm", "1.5M")
  assert.strictEqual(own.stderr, "--tpm was the tenant's and is 1,500,000\n")
  assert.match(
    (yield* tollgateHere("disable-tenant", "--tenant", "acme")).stderr,
    /2 active keys of the tenant get 401/
  )
  const gone = yield* tollgateHere("revoke-key", "--key", ci)
  assert.strictEqual(gone.stdout, `${ci} is revoked (ci of acme, never used)\n`)
})

test("when a tenant is renamed or deleted, then its keys stay, and only one that was never used goes", function* () {
  for (const name of ["acme", "typo", "used"]) succeeds(yield* tollgateHere("create-tenant", "--name", name))
  succeeds(yield* tollgateHere("create-key", "--tenant", "acme", "--name", "k"))
  failsWith(
    yield* tollgateHere("rename-tenant", "--tenant", "acme", "--name", "typo"),
    /tenant "typo" exists already/
  )
  failsWith(
    yield* tollgateHere("rename-tenant", "--tenant", "nobody", "--name", "x"),
    /unknown tenant "nobody"/
  )
  succeeds(yield* tollgateHere("rename-tenant", "--tenant", "acme", "--name", "Acme Labs"))
  const registry = yield* Registry
  assert.lengthOf(yield* registry.listKeys("Acme Labs"), 1)
  failsWith(
    yield* tollgateHere("delete-tenant", "--tenant", "Acme Labs"),
    /has 1 key, revoked ones included: it can be disabled/
  )
  const isUsed = Effect.fnUntraced(function* () {
    failsWith(
      yield* tollgateHere("delete-tenant", "--tenant", "used"),
      /has used tokens, and reports need its name/
    )
  })
  // Of a key that has another tenant by now.
  yield* sql`INSERT INTO intents (request_id, tenant_id, key_id, key_prefix, model, endpoint, method, streamed, client_ip,
      arrived_at, admitted_at, held, tokens_in, lease_until)
    SELECT gen_random_uuid(), id, gen_random_uuid(), 'tg_000000000', 'm', '/', 'POST', false, '', now(), now(), 1, 1, now()
    FROM tenants WHERE name = 'used'`
  yield* isUsed()
  yield* sql`DELETE FROM intents`
  yield* sql`INSERT INTO ledger SELECT gen_random_uuid(), now()::date, id, 1, 1, 1 FROM tenants WHERE name = 'used'`
  yield* isUsed()
  succeeds(yield* tollgateHere("delete-tenant", "--tenant", "typo"))
  failsWith(yield* tollgateHere("delete-tenant", "--tenant", "typo"), /unknown tenant "typo"/)
})

const Keys = Schema.Array(Schema.Struct({ prefix: Schema.String }))

test("when a key moves to another tenant, then those of its account move along, and the ledger stays as it is", function* () {
  const registry = yield* Registry
  for (const name of ["from", "to"]) succeeds(yield* tollgateHere("create-tenant", "--name", name))
  const { key } = yield* registry.createKey({ tenant: "from", name: "k" })
  yield* registry.changeKey(key.prefix, { budgetTotal: 100 })
  const { key: next } = yield* registry.rotateKey(key.prefix, undefined)
  yield* sql`INSERT INTO ledger SELECT id, now()::date, tenant_id, 1, 30, 10 FROM api_keys WHERE prefix = ${key.prefix}`
  const { key: same } = yield* registry.createKey({ tenant: "to", name: "k" })
  const move = (...more: ReadonlyArray<string>) =>
    tollgateHere("move-key", "--key", next.prefix, "--tenant", "to", ...more)
  failsWith(yield* move(), /has a live key named "k"/)
  yield* registry.revokeKey(same.prefix)
  const moved = yield* json(Keys, yield* move("--json"))
  assert.deepStrictEqual(
    moved.map(({ prefix }) => prefix),
    [key.prefix, next.prefix]
  )
  assert.lengthOf(yield* registry.listKeys("from"), 0)
  assert.strictEqual((yield* registry.usage("from", "day")).tokensIn, 30)
  assert.strictEqual((yield* registry.usage("to", "day")).tokensIn, 0)
  assert.strictEqual(
    (yield* registry.showBudgets({ key: next.prefix })).find(({ period }) => period === "total")?.spent,
    40
  )
  assert.match((yield* move()).stdout, /is a key of to already/)
  const back = yield* tollgateHere("move-key", "--key", next.prefix, "--tenant", "from")
  assert.include(back.stderr, "2 keys with one account are of from now. What was used")
  failsWith(yield* tollgateHere("move-key", "--key", next.prefix, "--tenant", "nobody"), /unknown tenant/)
  failsWith(yield* tollgateHere("move-key", "--key", "tg_000000000", "--tenant", "to"), /unknown key prefix/)
})

it("when a key has models of its own, then it may use those that its tenant may use too", () => {
  const names = (grant: ReturnType<typeof grantOf>) => (grant === "all" ? grant : [...grant])
  assert.strictEqual(grantOf("all", null), "all")
  assert.deepStrictEqual(names(grantOf(new Set(["a:1"]), null)), ["a:1"])
  assert.deepStrictEqual(names(grantOf("all", ["a:1", "b:latest"])), ["a:1", "b"])
  assert.deepStrictEqual(names(grantOf(new Set(["a", "b:latest", "c:1"]), ["a:latest", "b", "c:2", "d"])), [
    "a",
    "b"
  ])
  assert.deepStrictEqual(names(grantOf("all", [])), [])
})

inWorld(layerGateway())("the models of a key", (test) => {
  test("when a key has some of its tenant's models, then it gets and sees no others, and other keys are as before", function* () {
    const registry = yield* Registry
    const { prefix, secret, tenant } = yield* newKey({ models: ["m", "other"] })
    const { secret: free } = yield* registry.createKey({ tenant, name: "free" })
    const set = (...args: ReadonlyArray<string>) =>
      tollgateHere("set-models", "--key", prefix, ...args).pipe(Effect.provide(TestConsole.layer))
    const status = Effect.fnUntraced(function* (key: string, model: string) {
      return (yield* call("/api/chat", { secret: key, body: hello({ model, stream: false }) })).status
    })
    failsWith(yield* set("--models", "m,gone"), /models that the tenant may use, and gone is none/)
    failsWith(yield* set("--models", ""), /--yes must be given too, because the key could use no model then/)
    failsWith(yield* set("--add", "m"), /--models must be given with --key, and no other option/)
    const ran = yield* set("--models", "other:latest")
    succeeds(ran)
    assert.match(
      ran.stderr,
      /^Before: all of its tenant's\nThe model server does not answer, so it was not checked/
    )
    const allowed = tollgateWithModels("m:latest")(
      ..."set-models --models other --yes --key".split(" "),
      prefix
    )
    assert.include((yield* Effect.provide(allowed, TestConsole.layer)).stderr, "other is not installed")
    yield* eventually(status(secret, "m"), (found) => found === 403)
    assert.strictEqual(yield* status(secret, "m"), 403)
    assert.strictEqual(yield* status(secret, "other"), 200)
    assert.strictEqual(yield* status(free, "m"), 200)
    const tags = yield* call("/api/tags", { secret })
    assert.include(tags.text, "other:latest")
    assert.notInclude(tags.text, '"m:latest"')
    succeeds(yield* set("--models", "none"))
    yield* eventually(status(secret, "m"), (found) => found === 200)
    assert.strictEqual(yield* status(secret, "m"), 200)
  })
})

test("when the model server is older than what is supported, then status warns of it and names its version", function* () {
  const old = Layer.mock(Backend, {
    guards,
    models: Effect.succeed([modelNamed("a:1")]),
    ping: Effect.succeed({ tooOld: "0.24.0" })
  })
  const ran = yield* tollgateWith(old)("status")
  assert.match(ran.stdout, /backend version +warning +0\.24\.0/i)
  assert.include(ran.stdout, "take Ollama 0.33 or later")
})
