/** Evidence, permits and calls for tests of one gate, and of what stands behind all of them. */
import { intentRow } from "../../src/audit/rows.ts"
import type { Arrival } from "../../src/domain/AuditRecord.ts"
import type { Caller } from "../../src/domain/Caller.ts"
import { type Asked, type Evidence, type Permit, seal } from "../../src/domain/Evidence.ts"
import type { InferenceRequest, ModelCall, PreparedRequest } from "../../src/domain/Inference.ts"
import { noResets } from "../../src/domain/Limits.ts"
import type { Model } from "../../src/domain/Model.ts"
import { prepare } from "../../src/domain/prepare.ts"
import type { Reservation } from "../../src/domain/Reservation.ts"
import type { Intent } from "./records.ts"
import { memoryKey } from "./twins/KeyStore.ts"
import { utc } from "../../src/domain/Calendar.ts"

export const modelNamed = (name: string): Model => ({
  name,
  modifiedAt: "2026-01-01T00:00:00Z",
  size: 1,
  digest: "d",
  details: {},
  capabilities: ["completion"]
})

export const callerWith = (models: Caller["models"]): Caller =>
  memoryKey({
    tenantId: "1",
    keyId: "1",
    accountId: "1",
    keyPrefix: "tg_AAAAAAAAA",
    limits: { rpm: 60, tpm: 1000, concurrent: 4 },
    models
  }).caller

export const arrivalOf = (requestId = "r"): Arrival => ({
  requestId,
  arrivedAt: 0,
  method: "POST",
  endpoint: "/api/chat",
  clientIp: "127.0.0.1"
})

export const requestOf = (request: Partial<InferenceRequest> = {}): InferenceRequest => ({
  kind: "chat",
  model: "client-spelling",
  stream: true,
  body: { messages: [{ role: "user", content: "hi" }] },
  options: { temperature: 0.5 },
  maxTokens: undefined,
  promptBytes: 2,
  promptEstimate: 1,
  ...request
})

/** For a model of which nothing is known. */
export const prepared = (request: InferenceRequest): PreparedRequest => {
  const { capabilities: _unknown, ...model } = modelNamed("m")
  return prepare(request, model)
}

export const callOf = (request: Partial<InferenceRequest> = {}, numPredict = 100): ModelCall => ({
  request: prepared(requestOf(request)),
  numPredict,
  plan: { runs: 1, unseen: false, collects: false }
})

export const askedOf = (request: InferenceRequest = requestOf(), arrival = arrivalOf()): Asked => ({
  arrival,
  request,
  outputBound: 100
})

/** A key that was verified. */
export const verified = (caller: Caller = callerWith("all")): Evidence<"KeyStore"> =>
  seal.KeyStore({ caller })

export interface Terms {
  readonly arrival?: Arrival
  readonly caller?: Caller
  readonly call?: ModelCall
  readonly expectedTokens?: number
  readonly alias?: string
  readonly endUser?: string
  readonly reservation?: Partial<Reservation>
}

/** What the Limiter has let through. */
export const reservedFor = (
  model: string,
  { arrival = arrivalOf(), call = callOf(), caller = callerWith("all"), ...terms }: Terms = {}
): Evidence<"Limiter"> => {
  const full = { limit: 60, remaining: 60 }
  return seal.Limiter(
    seal.Discovery(verified(caller), {
      ...askedOf(requestOf(), arrival),
      request: call.request,
      model: modelNamed(model),
      ...(terms.alias === undefined ? {} : { alias: terms.alias }),
      ...(terms.endUser === undefined ? {} : { endUser: terms.endUser })
    }),
    {
      reservation: {
        id: arrival.requestId,
        claims: {
          account: { group: caller.tenantId, key: caller.keyId },
          limits: caller.limits,
          budgets: caller.budgets
        },
        held: 1,
        available: 1000,
        admittedAt: 0,
        slot: true,
        ...terms.reservation
      },
      headroom: { requests: full, tokens: full, budgets: {}, resets: noResets },
      expectedTokens: terms.expectedTokens ?? 1,
      call
    }
  )
}

/** A request of which the audit makes this intent. */
export const queuedFor = ({
  arrival,
  caller,
  model,
  promptEstimate,
  reservation,
  streamed,
  ...names
}: Intent): Evidence<"Queue"> =>
  seal.Queue(
    reservedFor(model, {
      ...names,
      arrival,
      caller,
      reservation,
      call: callOf({ promptEstimate, stream: streamed })
    }),
    { place: undefined }
  )

export const intentRowOf = (intent: Intent) => intentRow(queuedFor(intent).facts, utc)

export const permitFor = (model: string, call: ModelCall = callOf()): Permit =>
  seal.Audit(seal.Queue(reservedFor(model, { call }), { place: undefined }), {})
