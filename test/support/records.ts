/** Intents and audit records of requests that never were, each key and request with an id of its own. */
import { randomUUID, randomUUIDv7 } from "node:crypto"
import type { Arrival, AuditRecord } from "../../src/domain/AuditRecord.ts"
import type { Caller } from "../../src/domain/Caller.ts"
import type { Reservation } from "../../src/domain/Reservation.ts"
import type { Usage } from "../../src/domain/Usage.ts"
import { memoryKey } from "./twins/KeyStore.ts"

export const noon = Date.UTC(2026, 10, 21, 12)

export const callerOf = (keyId: string = randomUUID(), tenantId: string = randomUUID()): Caller =>
  memoryKey({
    tenantId,
    keyId,
    accountId: keyId,
    keyPrefix: "tg_AAAAAAAAA",
    scopes: new Set(["chat"]),
    limits: { rpm: 60, tpm: 1000, concurrent: 4 }
  }).caller

/** What the audit stores of a request before the model is called. */
export interface Intent {
  readonly arrival: Arrival
  readonly caller: Caller
  readonly model: string
  readonly alias?: string
  readonly endUser?: string
  readonly streamed: boolean
  readonly reservation: Reservation
  readonly promptEstimate: number
}

export interface Terms {
  readonly caller?: Caller
  readonly requestId?: string
  readonly arrivedAt?: number
  readonly admittedAt?: number
  readonly held?: number
  readonly promptEstimate?: number
  readonly alias?: string
  readonly endUser?: string
  /** the account of an end user with limits */
  readonly user?: string
}

export const intentOf = (terms: Terms = {}): Intent => {
  const caller = terms.caller ?? callerOf()
  const requestId = terms.requestId ?? randomUUIDv7()
  const arrivedAt = terms.arrivedAt ?? noon
  return {
    arrival: { requestId, arrivedAt, method: "POST", endpoint: "/api/chat", clientIp: "127.0.0.1" },
    caller,
    model: "m:latest",
    ...(terms.alias === undefined ? {} : { alias: terms.alias }),
    ...(terms.endUser === undefined ? {} : { endUser: terms.endUser }),
    streamed: true,
    reservation: {
      id: requestId,
      claims: {
        account: { group: caller.tenantId, key: caller.keyId },
        limits: caller.limits,
        budgets: caller.budgets,
        ...(terms.user === undefined
          ? {}
          : { user: { id: terms.user, limits: caller.limits, budgets: caller.budgets } })
      },
      held: terms.held ?? 100,
      available: 1000,
      admittedAt: terms.admittedAt ?? arrivedAt,
      slot: true
    },
    promptEstimate: terms.promptEstimate ?? 5
  }
}

export const usageOf = (tokensIn: number, tokensOut: number): Usage => ({
  tokensIn,
  tokensOut,
  source: "backend"
})

/** The record that ends `intent`. */
export const endOf = (intent: Intent, usage: Usage, more: Partial<AuditRecord> = {}): AuditRecord => ({
  arrival: intent.arrival,
  caller: intent.caller,
  model: intent.model,
  ...(intent.alias === undefined ? {} : { alias: intent.alias }),
  ...(intent.endUser === undefined ? {} : { endUser: intent.endUser }),
  ...(intent.reservation.claims.user === undefined ? {} : { userAccount: intent.reservation.claims.user.id }),
  streamed: intent.streamed,
  usage,
  status: 200,
  latencyMs: 12,
  ...more
})

/** A request that was turned away. */
export const refusalOf = (more: Partial<AuditRecord> = {}): AuditRecord => {
  const { arrival } = intentOf()
  return {
    arrival,
    streamed: false,
    usage: { tokensIn: 0, tokensOut: 0, source: "estimated" },
    status: 401,
    errorType: "unauthorized",
    latencyMs: 1,
    ...more
  }
}
