/**
 * The key store in memory, for tests. Tests can add, change and revoke keys. Secrets are stored in clear, so it must never
 * get a real one.
 */
import { randomUUID } from "node:crypto"
import { Clock, Effect, Exit, Layer } from "effect"
import { type Caller, callerSettings, scopes } from "../../../src/domain/Caller.ts"
import { Unauthorized, Unavailable } from "../../../src/domain/Errors.ts"
import { type Evidence, seal } from "../../../src/domain/Evidence.ts"
import { defaultNamespace, keyShape, mintKey, prefixOf } from "../../../src/domain/Key.ts"
import { newKey, newTenant } from "../../../src/domain/attributes.ts"
import { KeyStore } from "../../../src/gates/keys/KeyStore.ts"

export interface MemoryKey {
  /** the full key, in clear */
  readonly secret: string
  readonly caller: Caller
  readonly status?: "active" | "disabled" | "revoked"
  readonly tenantDisabled?: boolean
  /** epoch milliseconds of the Effect clock */
  readonly expiresAtMs?: number
}

const wide = { rpm: 1000, tpm: 1_000_000, concurrent: 100, allowAllModels: true }

/** A key for the memory twin: a new random one, of a new tenant, for all models, with wide limits. */
export const memoryKey = (caller: Partial<Caller> = {}): MemoryKey => {
  const [secret, keyId] = [mintKey(defaultNamespace), randomUUID()]
  return {
    secret,
    caller: {
      tenantId: randomUUID(),
      tenantName: "acme",
      keyId,
      accountId: keyId,
      keyPrefix: prefixOf(secret),
      scopes: new Set(scopes),
      ...callerSettings(newKey, { ...newTenant, ...wide }, 30),
      ...caller
    }
  }
}

export interface MemoryKeyStore {
  readonly layer: Layer.Layer<KeyStore>
  /** Adds a key, or replaces the one with the same prefix. */
  readonly add: (key: MemoryKey) => void
  /** Changes fields of a key. An unknown key is ignored. */
  readonly change: (
    prefix: string,
    changes: Partial<MemoryKey> | ((key: MemoryKey) => Partial<MemoryKey>)
  ) => void
  readonly revoke: (prefix: string) => void
  /** While down, every check that needs the database fails with `Unavailable`. */
  readonly setDown: (down: boolean) => void
}

/** Makes a store with its controls. */
export const makeMemory = (
  seed: Iterable<MemoryKey> = [],
  namespace: string = defaultNamespace
): MemoryKeyStore => {
  const keys = new Map<string, MemoryKey>()
  const shape = keyShape(namespace)
  let down = false
  const add = (key: MemoryKey) => {
    keys.set(prefixOf(key.secret), key)
  }
  const change: MemoryKeyStore["change"] = (prefix, changes) => {
    const key = keys.get(prefix)
    if (key === undefined) return
    keys.set(prefix, { ...key, ...(typeof changes === "function" ? changes(key) : changes) })
  }
  for (const key of seed) add(key)
  const outage = () =>
    Exit.fail(new Unavailable({ gate: "KeyStore", retryAfterS: 1, cause: new Error("down") }))
  const check = (secret: string): Effect.Effect<Evidence<"KeyStore">, Unauthorized | Unavailable> => {
    if (down) return outage()
    const key = keys.get(prefixOf(secret))
    if (
      key === undefined ||
      key.secret !== secret ||
      (key.status ?? "active") !== "active" ||
      key.tenantDisabled === true
    ) {
      return Exit.fail(new Unauthorized({}))
    }
    const { caller, expiresAtMs } = key
    const verified = Effect.succeed(seal.KeyStore({ caller }))
    return expiresAtMs === undefined
      ? verified
      : Effect.flatMap(Clock.currentTimeMillis, (now) =>
          expiresAtMs <= now ? new Unauthorized({}) : verified
        )
  }
  return {
    add,
    change,
    revoke: (prefix) => change(prefix, { status: "revoked" }),
    setDown: (value) => {
      down = value
    },
    layer: Layer.succeed(KeyStore, {
      verify: (secret) =>
        secret === undefined || !shape.test(secret) ? Effect.fail(new Unauthorized({})) : check(secret),
      forget: () => Effect.void,
      ping: Effect.suspend(() => (down ? outage() : Effect.void))
    })
  }
}

/** The store alone, for tests that never change it. */
export const layerMemory = (seed: Iterable<MemoryKey> = []): Layer.Layer<KeyStore> => makeMemory(seed).layer
