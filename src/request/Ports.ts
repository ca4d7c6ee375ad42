/**
 * The services a request passes, looked up once when the gateway is put together. Looked up by every request they cost
 * more than what they decide: each scope a request opens is a context of its own, which Effect copies whole after a
 * few lookups (measured: a tenth of all memory a request took).
 */
import { Effect } from "effect"
import { Audit } from "../audit/Audit.ts"
import { Metrics } from "../observability/Metrics.ts"
import { PromptLog } from "../promptlog/PromptLog.ts"
import { Backend } from "../backend/Backend.ts"
import { CircuitBreaker } from "../backend/CircuitBreaker.ts"
import { Budget } from "../gates/limits/Budget.ts"
import { Discovery } from "../gates/models/Discovery.ts"
import { FairQueue } from "../gates/queue/FairQueue.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { SettlementQueue } from "./SettlementQueue.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import { RequestLines } from "../observability/requestLine.ts"
import { TokenRates } from "./TokenRates.ts"

export const ports = Effect.all({
  discovery: Discovery,
  limiter: Limiter,
  budget: Budget,
  meter: Meter,
  queue: FairQueue,
  audit: Audit,
  breaker: CircuitBreaker,
  backend: Backend,
  metrics: Metrics,
  promptLog: PromptLog,
  settlements: SettlementQueue,
  leases: LeaseKeeper,
  nowMs: makeMonotonicMs,
  requestLines: RequestLines,
  rates: Effect.sync(() => new TokenRates())
})

export type Ports = Effect.Success<typeof ports>
