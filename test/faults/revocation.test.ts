/**
 * docs/hardening.md, A11, A12 and A19: whatever an administrator changes is in force within about a second, although no
 * notification arrives: the connection that listens lies behind a black hole the whole time.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, it } from "@effect/vitest"
import { Context, Deferred, Effect, Fiber, Layer, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import * as Metrics from "../../src/observability/Metrics.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { layerPostgres as layerKeyStore } from "../../src/gates/keys/postgres.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { becomes, outcomeOf } from "../contract/KeyStore.ts"
import { makeFaultProxy } from "../support/FaultProxy.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"

/** The key store's client, whose LISTEN goes another way than its reads: one that can be made to lose everything. */
const layerDeafStore = Layer.unwrap(
  Effect.gen(function* () {
    const pg = yield* PgClient.PgClient
    const url = new URL(Redacted.value((yield* TestDatabase).url))
    const proxy = yield* makeFaultProxy({ host: url.hostname, port: Number(url.port) })
    url.port = String(proxy.port)
    const other = Context.get(
      yield* Layer.build(layerPostgres({ url: Redacted.make(url.href) })),
      PgClient.PgClient
    )
    const listened = yield* Deferred.make<void>()
    const split = new Proxy(pg, {
      get: (target, name) =>
        name === "listen"
          ? (channel: string) =>
              Effect.tap(other.listen(channel), () => Deferred.succeed(listened, undefined))
          : Reflect.get(target, name)
    })
    const store = yield* Layer.build(
      layerKeyStore({ namespace: "tg_" }).pipe(Layer.provide(Layer.succeed(PgClient.PgClient, split)))
    )
    yield* Deferred.await(listened)
    yield* proxy.blackHole("toClient")
    // The client says goodbye when it is closed, and waits for an answer.
    yield* Effect.addFinalizer(() => proxy.heal)
    return Layer.succeedContext(store)
  })
)

const World = layerDeafStore.pipe(
  Layer.provideMerge(layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 1000, concurrent: 4 } })),
  Layer.provideMerge(Layer.fresh(Metrics.layer)),
  Layer.provideMerge(TestPostgres)
)

let serial = 0

/** A key in use, of a tenant of its own. */
const newKey = Effect.gen(function* () {
  const registry = yield* Registry
  const tenant = `t-${++serial}`
  yield* registry.createTenant({ name: tenant })
  yield* registry.setModels(tenant, { models: ["m:1"] })
  const { secret } = yield* registry.createKey({ tenant, name: "k" })
  assert.strictEqual(yield* outcomeOf(secret), "ok")
  return { secret, tenant, prefix: prefixOf(secret) }
})

const check = <E>(title: string, test: Effect.Effect<void, E, Layer.Success<typeof World>>) =>
  it.live(title, () => Effect.provide(test, World))

check(
  "when the command or a plain row in the outbox revokes a key, then it is refused within about a second",
  Effect.gen(function* () {
    const [registry, sql] = [yield* Registry, yield* SqlClient.SqlClient]
    const [first, second, kept] = [yield* newKey, yield* newKey, yield* newKey]
    yield* registry.revokeKey(first.prefix)
    yield* becomes(outcomeOf(first.secret), "Unauthorized")
    // The row counts although its trigger does nothing.
    yield* sql`
      CREATE OR REPLACE FUNCTION apply_revocation() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN RETURN NULL; END $$`
    yield* sql`INSERT INTO revocations (key_prefix) VALUES (${second.prefix})`
    yield* becomes(outcomeOf(second.secret), "Unauthorized")
    assert.strictEqual(yield* outcomeOf(kept.secret), "ok")
  })
)

check(
  "when rows of the outbox are committed in another order than their ids, then each revokes",
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const [early, late] = [yield* newKey, yield* newKey]
    const written = yield* Deferred.make<void>()
    const go = yield* Deferred.make<void>()
    const slow = yield* Effect.forkChild(
      sql.withTransaction(
        sql`INSERT INTO revocations (key_prefix) VALUES (${early.prefix})`.pipe(
          Effect.andThen(Deferred.succeed(written, undefined)),
          Effect.andThen(Deferred.await(go))
        )
      )
    )
    yield* Deferred.await(written)
    yield* sql`INSERT INTO revocations (key_prefix) VALUES (${late.prefix})`
    yield* becomes(outcomeOf(late.secret), "Unauthorized")
    assert.strictEqual(yield* outcomeOf(early.secret), "ok")
    yield* Deferred.succeed(go, undefined)
    yield* Fiber.join(slow)
    yield* becomes(outcomeOf(early.secret), "Unauthorized")
    const [order] = yield* sql<{ readonly swapped: boolean }>`
      SELECT (SELECT id FROM revocations WHERE key_prefix = ${early.prefix})
        < (SELECT id FROM revocations WHERE key_prefix = ${late.prefix}) AS swapped`
    assert.isTrue(order?.swapped)
  })
)

check(
  "when limits, budgets, models, scopes, expiry or disabling are changed, then that is in force within about a second",
  Effect.gen(function* () {
    const [registry, sql, store] = [yield* Registry, yield* SqlClient.SqlClient, yield* KeyStore]
    const { prefix, secret, tenant } = yield* newKey
    const told = Effect.suspend(() => store.verify(secret)).pipe(
      Effect.map(
        ({
          facts: {
            caller: { budgets, limits, models, scopes }
          }
        }) => JSON.stringify([limits, budgets, models === "all" ? "all" : [...models], [...scopes].sort()])
      ),
      Effect.orElseSucceed(() => "refused")
    )
    const limits = { rpm: 60, tpm: 1000, concurrent: 4 }
    const changes = [
      [Effect.void, [limits, {}, ["m:1"], ["chat", "embeddings"]]],
      [
        registry.changeTenant(tenant, { rpm: 7 }),
        [{ ...limits, rpm: 7 }, {}, ["m:1"], ["chat", "embeddings"]]
      ],
      [
        registry.changeKey(prefix, { budgetDaily: 5 }),
        [{ ...limits, rpm: 7 }, { day: 5 }, ["m:1"], ["chat", "embeddings"]]
      ],
      [
        registry.setModels(tenant, { models: ["n:1"] }),
        [{ ...limits, rpm: 7 }, { day: 5 }, ["n:1"], ["chat", "embeddings"]]
      ],
      [
        sql`UPDATE api_keys SET scopes = '{embeddings}' WHERE prefix = ${prefix}`,
        [{ ...limits, rpm: 7 }, { day: 5 }, ["n:1"], ["embeddings"]]
      ]
    ] as const
    for (const [change, state] of changes) {
      yield* change
      yield* becomes(told, JSON.stringify(state))
    }
    for (const set of [
      (on: boolean) => registry.setKeyEnabled(prefix, on),
      (on: boolean) => registry.setTenantEnabled(tenant, on),
      (
        on: boolean
      ) => sql`UPDATE api_keys SET expires_at = now() + ${on ? "1 hour" : "-1 hour"}::text::interval
        WHERE prefix = ${prefix}`
    ]) {
      yield* set(false)
      yield* becomes(outcomeOf(secret), "Unauthorized")
      yield* set(true)
      yield* becomes(outcomeOf(secret), "ok")
    }
  })
)
