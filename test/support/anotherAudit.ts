/** An audit of its own on the database of the test, as another process has one. */
import { Context, Effect, Layer } from "effect"
import { Audit } from "../../src/audit/Audit.ts"
import type { AuditOptions } from "../../src/audit/postgres.ts"
import { layerLiveAudit } from "../contract/auditWorld.ts"

export const openTimeoutMs = 500
export const patience = {
  leaseS: 30,
  openTimeoutMs,
  closeTimeoutMs: 1000,
  refuseTimeoutMs: 250,
  lateAfterMs: 300
}

export const another = (options: Partial<AuditOptions> = {}) =>
  Effect.map(Layer.build(Layer.fresh(layerLiveAudit({ ...patience, ...options }))), (services) =>
    Context.get(services, Audit)
  )
