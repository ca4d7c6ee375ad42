/** The tenant and key that embedded mode starts an empty database with. */
import { Effect } from "effect"
import { Registry } from "../admin/Registry.ts"

/** The new key's secret; undefined when there are tenants already. */
export const seedDemo = Effect.gen(function* () {
  const registry = yield* Registry
  if ((yield* registry.listTenants).length > 0) return undefined
  yield* registry.createTenant({ name: "demo", allowAllModels: true })
  const { secret } = yield* registry.createKey({ tenant: "demo", name: "first" })
  return secret
})
