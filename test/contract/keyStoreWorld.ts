/** The contract's world on a real Postgres that may be stopped, with the registry as its hands. */
import { randomBytes } from "node:crypto"
import { Effect, Layer, Struct } from "effect"
import { SqlClient } from "effect/sql"
import * as Metrics from "../../src/observability/Metrics.ts"
import { layerPostgres as layerKeyStore, type KeyStoreOptions } from "../../src/gates/keys/postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { budgetOf } from "../../src/admin/rows.ts"
import { layerPrivatePostgres, TestCluster } from "../support/TestPostgres.ts"
import { World } from "./KeyStore.ts"
import { quickHash } from "../support/quickHash.ts"

const layerWorld = Layer.effect(
  World,
  Effect.gen(function* () {
    const registry = yield* Registry
    const sql = yield* SqlClient.SqlClient
    const cluster = yield* TestCluster
    return World.of({
      addKey: (options = {}) =>
        Effect.gen(function* () {
          const tenant = `t${randomBytes(6).toString("hex")}`
          yield* registry.createTenant({ name: tenant, rpm: 60, tpm: 1000, concurrent: 4 })
          yield* registry.setModels(tenant, { models: ["m:1"] })
          const { key, secret } = yield* registry.createKey({
            tenant,
            name: "key",
            ...(options.scopes === undefined ? {} : { scopes: options.scopes }),
            ...options.limits
          })
          yield* registry.changeKey(key.prefix, Struct.renameKeys(options.budgets ?? {}, budgetOf))
          yield* registry.changeTenant(tenant, Struct.renameKeys(options.tenantBudgets ?? {}, budgetOf))
          return secret
        }).pipe(Effect.orDie),
      revoke: (prefix) => Effect.asVoid(Effect.orDie(registry.revokeKey(prefix))),
      setKeyEnabled: (prefix, enabled) =>
        Effect.asVoid(Effect.orDie(registry.setKeyEnabled(prefix, enabled))),
      setTenantEnabled: (prefix, enabled) =>
        Effect.asVoid(
          Effect.orDie(sql`
            UPDATE tenants SET disabled = ${!enabled}
            WHERE id = (SELECT tenant_id FROM api_keys WHERE prefix = ${prefix})`)
        ),
      expire: (prefix) =>
        Effect.asVoid(
          Effect.orDie(sql`UPDATE api_keys SET expires_at = now() - interval '1 ms' WHERE prefix = ${prefix}`)
        ),
      setRpm: (prefix, rpm) => Effect.asVoid(Effect.orDie(registry.changeKey(prefix, { rpm }))),
      setDown: (down) => (down ? cluster.stop : Effect.orDie(cluster.start))
    })
  })
)

/** Each build is another server. */
export const layerLiveWorld = (options: Partial<KeyStoreOptions> = {}) =>
  Layer.merge(layerKeyStore({ namespace: "tg_", ...options }), layerWorld).pipe(
    Layer.provideMerge(layerRegistry({ hash: quickHash, defaults: { rpm: 60, tpm: 1000, concurrent: 4 } })),
    Layer.provideMerge(Layer.fresh(Metrics.layer)),
    Layer.provideMerge(layerPrivatePostgres())
  )
