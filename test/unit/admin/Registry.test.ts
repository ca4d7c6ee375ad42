import { assert, it } from "@effect/vitest"
import { verify } from "@node-rs/argon2"
import { Effect, Layer } from "effect"
import { mintKey, prefixOf } from "../../../src/domain/Key.ts"
import { layerPostgres, Registry, type RegistryOptions } from "../../../src/admin/Registry.ts"
import { TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const layerRegistry = (options: Partial<RegistryOptions> = {}) =>
  layerPostgres({ defaults: { rpm: 60, tpm: 100_000, concurrent: 4 }, ...options }).pipe(
    Layer.provideMerge(TestPostgres)
  )

const test = testWith(it.live, layerRegistry())

test("when a key is created, then the database holds an argon2id hash of it and nowhere its text", function* () {
  const registry = yield* Registry
  yield* registry.createTenant({ name: "t" })
  const { secret } = yield* registry.createKey({ tenant: "t", name: "k" })
  const rows = yield* sql<{ hash: string; row: string }>`SELECT hash, k::text AS row FROM api_keys k`
  assert.strictEqual(rows.length, 1)
  const { hash = "", row = "" } = rows[0] ?? {}
  assert.isTrue(yield* Effect.promise(() => verify(hash, secret)))
  assert.notInclude(row, secret.slice(12))
})

it.live("when a new key's prefix is taken, then another key is made", () => {
  const first = mintKey("tg_")
  const clash = prefixOf(first) + mintKey("tg_").slice(-32)
  const fresh = mintKey("tg_")
  const mints = [first, clash, fresh]
  return Effect.gen(function* () {
    const registry = yield* Registry
    yield* registry.createTenant({ name: "t" })
    yield* registry.createKey({ tenant: "t", name: "a" })
    assert.strictEqual((yield* registry.createKey({ tenant: "t", name: "b" })).secret, fresh)
    assert.deepStrictEqual(
      (yield* registry.listKeys("t")).map(({ prefix }) => prefix),
      [prefixOf(first), prefixOf(fresh)]
    )
  }).pipe(Effect.provide(layerRegistry({ mint: () => mints.shift() ?? first })))
})

it.live("when the random source repeats itself, then creating a key fails and does not loop", () => {
  const always = mintKey("tg_")
  return Effect.gen(function* () {
    const registry = yield* Registry
    yield* registry.createTenant({ name: "t" })
    yield* registry.createKey({ tenant: "t", name: "a" })
    const error = yield* Effect.flip(registry.createKey({ tenant: "t", name: "b" }))
    assert.strictEqual(error._tag, "RegistryDown")
  }).pipe(Effect.provide(layerRegistry({ mint: () => always })))
})

test("when two operators create one tenant at once, then one of them gets an error", function* () {
  const registry = yield* Registry
  const outcomes = yield* Effect.all(
    Array.from({ length: 4 }, () =>
      registry
        .createTenant({ name: "same" })
        .pipe(Effect.match({ onFailure: (error) => error._tag, onSuccess: () => "created" }))
    ),
    { concurrency: "unbounded" }
  )
  assert.deepStrictEqual(outcomes.sort(), [
    "DuplicateTenant",
    "DuplicateTenant",
    "DuplicateTenant",
    "created"
  ])
})

test("when a key is revoked several times at once, then one outbox row is written", function* () {
  const registry = yield* Registry
  yield* registry.createTenant({ name: "t" })
  const { key } = yield* registry.createKey({ tenant: "t", name: "k" })
  const answers = yield* Effect.all(
    Array.from({ length: 5 }, () => registry.revokeKey(key.prefix)),
    { concurrency: "unbounded" }
  )
  assert.strictEqual(answers.filter(({ already }) => !already).length, 1)
  assert.strictEqual((yield* sql`SELECT id FROM revocations`).length, 1)
})

test("when a name is given, then it keeps ordinary text and is refused if it could garble a terminal", function* () {
  const registry = yield* Registry
  for (const name of ["Zoë & Söhne", "研究室", "a".repeat(64), "o'brien\"; --", "🦙".repeat(64)]) {
    assert.strictEqual((yield* registry.createTenant({ name })).name, name)
  }
  for (const name of ["", " a", "a ", "a".repeat(65), "a\u001b[2J", "a\u0000", "a\u202eb", "a\u2028b"]) {
    assert.strictEqual(
      (yield* Effect.flip(registry.createTenant({ name })))._tag,
      "InvalidValue",
      JSON.stringify(name)
    )
  }
})
