/** Permits and calls for tests of what stands behind the gates. */
import type { BackendCall } from "../../src/backend/Backend.ts"
import type { Caller } from "../../src/domain/Caller.ts"
import { evidence } from "../../src/domain/Evidence.ts"
import type { InferenceRequest } from "../../src/domain/Inference.ts"
import type { Model } from "../../src/domain/Model.ts"
import { issue, type Permit } from "../../src/domain/Permit.ts"

export const modelNamed = (name: string): Model => ({
  name,
  modifiedAt: "2026-01-01T00:00:00Z",
  size: 1,
  digest: "d",
  details: {},
  capabilities: ["completion"]
})

export const callerWith = (models: Caller["models"]): Caller => ({
  tenantId: "1",
  tenantName: "acme",
  keyId: "1",
  keyPrefix: "tg_AAAAAAAAA",
  scopes: new Set(["chat", "embeddings"]),
  limits: { rpm: 60, tpm: 1000, concurrent: 4 },
  budgets: {},
  models,
  weight: 1,
  priority: "interactive"
})

export const permitFor = (model: string, caller: Caller = callerWith("all")): Permit => {
  const full = { limit: 60, remaining: 60 }
  return issue({
    KeyStore: evidence("KeyStore", caller),
    Discovery: evidence("Discovery", modelNamed(model)),
    Limiter: evidence("Limiter", { requests: full, tokens: full, budgets: {} }),
    Budget: evidence("Budget", {
      id: "r",
      claims: { account: { group: "1", key: "1" }, limits: caller.limits, budgets: {} },
      held: 1,
      available: 1000,
      admittedAt: 0,
      buckets: {},
      slot: true
    }),
    Audit: evidence("Audit", { requestId: "r" })
  })
}

export const callOf = (request: Partial<InferenceRequest> = {}, maxTokens = 100): BackendCall => ({
  request: {
    kind: "chat",
    model: "client-spelling",
    stream: true,
    body: { messages: [{ role: "user", content: "hi" }] },
    options: { temperature: 0.5 },
    maxTokens: undefined,
    promptBytes: 2,
    promptEstimate: 1,
    ...request
  },
  maxTokens,
  runs: 1
})
