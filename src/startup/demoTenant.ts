/** The tenant and key that embedded mode creates in an empty database. */
import { Effect } from "effect"
import { Registry } from "../admin/Registry.ts"

/** Returns the new key's secret; undefined when there are already tenants. */
export const seedDemo = Effect.gen(function* () {
  const registry = yield* Registry
  const { rows, unreadable } = yield* registry.listTenants
  if (rows.length + unreadable.length > 0) return undefined
  yield* registry.createTenant({ name: "demo", allowAllModels: true })
  const { secret } = yield* registry.createKey({ tenant: "demo", name: "first" })
  return secret
})
