import { Clock, Effect, Layer } from "effect"
import { makeMemory, memoryKey } from "../support/twins/KeyStore.ts"
import { suite, World } from "./KeyStore.ts"

const makeWorld = () => {
  const store = makeMemory()
  const limits = { rpm: 60, tpm: 1000, concurrent: 4 }
  const world = World.of({
    addKey: (options = {}) =>
      Effect.sync(() => {
        const key = memoryKey({
          scopes: new Set(options.scopes ?? ["chat", "embeddings"]),
          limits: { ...limits, ...options.limits },
          budgets: options.budgets ?? {},
          tenantBudgets: options.tenantBudgets ?? {},
          models: new Set(["m:1"])
        })
        store.add(key)
        return key.secret
      }),
    revoke: (prefix) => Effect.sync(() => store.revoke(prefix)),
    setKeyEnabled: (prefix, enabled) =>
      Effect.sync(() => store.change(prefix, { status: enabled ? "active" : "disabled" })),
    setTenantEnabled: (prefix, enabled) =>
      Effect.sync(() => store.change(prefix, { tenantDisabled: !enabled })),
    expire: (prefix) =>
      Effect.map(Clock.currentTimeMillis, (now) => store.change(prefix, { expiresAtMs: now - 1 })),
    setRpm: (prefix, rpm) =>
      Effect.sync(() =>
        store.change(prefix, (key) => ({ caller: { ...key.caller, limits: { ...limits, rpm } } }))
      ),
    setDown: (down) => Effect.sync(() => store.setDown(down))
  })
  return Layer.merge(store.layer, Layer.succeed(World, world))
}

suite("memory", makeWorld())
