/**
 * A circuit breaker as a state machine without a clock. Times are in milliseconds and must not go back.
 *
 * Closed, it counts consecutive failures, and opens at `failures` of them. A failure that may be the fault of one party says little of
 * others: such failures open it when they are of two or more parties, and nobody was served within `openMs`. Open, it refuses calls for
 * `openMs`. Then it is half-open: each key may try one call at a time, so no key keeps others out. A first frame closes it.
 */
import type { Caller } from "../domain/Caller.ts"
import { type LruCache, makeLruCache } from "../infra/LruCache.ts"

export type BreakerState = "closed" | "open" | "half-open"

export interface CircuitOptions {
  /** consecutive failures that open it; at least 1 */
  readonly failures: number
  readonly openMs: number
}

/** The caller of a call. */
export type Party = Pick<Caller, "keyId" | "keyPrefix" | "tenantId" | "tenantName">

/** What an error says of the model server. `outage`: a failure that no request can cause. `failure`: this one may have. */
export type Verdict = "outage" | "failure" | "ignored"

/** What a frame or an end has changed. */
export type Change = "opened" | "closed" | undefined

/** Lets one call pass. Its end must be recorded. It is ignored when the generation is no longer the circuit's. */
export interface Pass {
  readonly circuit: Circuit
  readonly caller: Party
  /** whether its failure says nothing here, because it tries the circuit of its key or tenant */
  readonly quiet: boolean
  generation: number
  /** `trying`: the circuit is half-open. `tried`: it has ended without a frame. `begun`: its first frame has come. */
  state: "passed" | "trying" | "tried" | "begun"
  /** the time from which its key may try again */
  againAt: number
}

/** Keys, and tenants, that are remembered. Beyond this number the least recently used one starts anew. */
export const maxRemembered = 10_000

/** While a call tries, its end may come at any moment. */
const tryingWaitMs = 1000

/** The part of `openMs` after which a key need not wait for its call that tries: it may be slow by what it asks for. */
const trialPart = 1 / 3

export class Circuit {
  readonly #options: CircuitOptions & { readonly of: "key" | "tenant" | "all" }
  /** grows each time that it opens or closes */
  #generation = 0
  #streak = 0
  /** failures of the streak that count whoever is served */
  #certain = 0
  /** the only party in the streak; undefined: several */
  #onlyParty: string | undefined
  /** the time of the last frame */
  #servedAt = Number.NEGATIVE_INFINITY
  /** by key, the last call that tries; undefined: it is closed */
  #trials: LruCache<Pass> | undefined
  /** the time from which a key may try that has not tried */
  #tryFrom = 0
  #openUntil = 0

  constructor(options: CircuitOptions & { readonly of: "key" | "tenant" | "all" }) {
    this.#options = options
  }

  state(now: number): BreakerState {
    return this.#trials === undefined ? "closed" : now < this.#openUntil ? "open" : "half-open"
  }

  /** The milliseconds until a call of the key may pass; 0: now. */
  waitMs(now: number, { keyId }: Party): number {
    if (this.#trials === undefined) return 0
    const last = this.#trials.get(keyId)
    const from = last?.againAt ?? this.#tryFrom
    return now >= from ? 0 : last?.state === "trying" ? tryingWaitMs : from - now
  }

  /** Lets a call pass that has `passed` the circuits of its key and tenant. Only when `waitMs` is 0. */
  admit(now: number, caller: Party, passed: ReadonlyArray<Pass>): Pass {
    // What keeps failing says nothing of others: not a key of its tenant, nor a tenant of everybody.
    const quiet = passed.some((pass) => pass.state === "trying")
    const state = this.#trials === undefined ? "passed" : "trying"
    const againAt = now + this.#options.openMs * trialPart
    const pass: Pass = { circuit: this, caller, quiet, generation: this.#generation, state, againAt }
    this.#trials?.set(caller.keyId, pass)
    return pass
  }

  /**
   * Records a frame. The first one of a call closes the circuit. So does a later one when no outage has opened it: an old connection
   * may outlive its server. A frame does not end a streak, because streams that all break must open the circuit of their key.
   */
  heard(pass: Pass, now: number): Change {
    const isFirst = pass.state !== "begun"
    pass.state = "begun"
    this.#servedAt = now
    if (this.#trials === undefined || (!isFirst && this.#certain >= this.#options.failures)) return undefined
    this.#trials = undefined
    this.#streak = this.#certain = 0
    this.#generation += 1
    pass.generation = this.#generation
    return "closed"
  }

  /** Records how a call ended. */
  record(pass: Pass, end: Verdict | "success", now: number): Change {
    if (pass.generation !== this.#generation) return undefined
    const { of, openMs } = this.#options
    const isOfKey = of === "key"
    const isCertain = isOfKey || end === "outage"
    const isFailure = end === "failure" || (end === "outage" && of === "all")
    if (this.#trials === undefined) {
      if (end === "success") this.#streak = this.#certain = 0
      const counts = isFailure && (isCertain || !pass.quiet)
      return counts && this.#isEnough(pass, isCertain, now) ? this.#open(now) : undefined
    }
    // The key has tried again meanwhile, so this says nothing new.
    if (this.#trials.get(pass.caller.keyId) !== pass) return undefined
    pass.state = "tried"
    pass.againAt = now
    // Only this key waits for a failure that may be its own: otherwise it could keep the circuit open for others.
    if (isFailure && isCertain) this.#open(now)
    else if (isFailure) pass.againAt = this.#openUntil = now + openMs
    return undefined
  }

  /** Counts a failure, and says whether there were enough. */
  #isEnough({ caller }: Pass, isCertain: boolean, now: number): boolean {
    const { failures, of, openMs } = this.#options
    const party = isCertain ? undefined : of === "tenant" ? caller.keyId : caller.tenantId
    this.#onlyParty = this.#streak === 0 || this.#onlyParty === party ? party : undefined
    this.#streak += 1
    if (isCertain) this.#certain += 1
    const isOfAll = this.#onlyParty === undefined && now - this.#servedAt >= openMs
    return this.#certain >= failures || (this.#streak >= failures && isOfAll)
  }

  #open(now: number): Change {
    this.#generation += 1
    this.#tryFrom = this.#openUntil = now + this.#options.openMs
    this.#trials = makeLruCache(maxRemembered)
    return "opened"
  }
}

/** What a frame has changed in the circuits of its call. */
export const hear = (passes: ReadonlyArray<Pass>, now: number): ReadonlyArray<Change> =>
  passes.map((pass) => pass.circuit.heard(pass, now))
