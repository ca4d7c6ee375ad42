/**
 * Requests of one key through the real admission arithmetic, `Hold`, `meterStream` and the counters in memory, without
 * sockets and without waiting: a test decides who takes the next step and when the Meter is away.
 */
import { type Array as Arr, Cause, Effect, Exit, Scope, Stream } from "effect"
import { BackendFailed } from "../../src/domain/Errors.ts"
import type { AnswerPull, Frame } from "../../src/domain/Frame.ts"
import type { JsonObject } from "../../src/domain/Inference.ts"
import type { Model } from "../../src/domain/Model.ts"
import { outcomes } from "../../src/domain/Outcome.ts"
import { totalTokens, type Usage } from "../../src/domain/Usage.ts"
import { MemoryMeter } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { MeterDown, Reserved } from "../../src/gates/meter/Meter.ts"
import type { Claims } from "../../src/domain/Reservation.ts"
import { makeMemory } from "../../src/gates/meter/memory/layer.ts"
import { RequestCost } from "../../src/request/RequestCost.ts"
import { Hold } from "../../src/request/Hold.ts"
import { meterStream } from "../../src/request/meterStream.ts"
import { numPredictOf, outputPlanOf, tokensToHold } from "../../src/domain/outputPlan.ts"
import { OutputTiming } from "../../src/request/OutputTiming.ts"
import { Habits } from "../../src/gates/limits/ModelHabits.ts"
import { callOf, modelNamed, permitFor, reservedFor } from "./permits.ts"
import { noon } from "./records.ts"

export interface Wish {
  readonly body: JsonObject
  readonly promptEstimate: number
  readonly maxTokens: number
  readonly streamed: boolean
}

export type Step = "frames" | "ended" | "failed"

const key = "k"
const thinker: Model = { ...modelNamed("m"), capabilities: ["completion", "thinking"] }

/** One admitted request. */
export class MeteredRequest {
  readonly cost: RequestCost
  readonly hold: Hold
  readonly numPredict: number
  readonly runs: number
  readonly shown: Array<Frame> = []
  error: string | undefined
  /** what it was charged, once it is over */
  charged: Usage | undefined
  over = false
  readonly #model: MeteredModel
  readonly #scope = Scope.makeUnsafe()
  #pull: AnswerPull | undefined

  constructor(model: MeteredModel, cost: RequestCost, hold: Hold, numPredict: number, runs: number) {
    this.#model = model
    this.cost = cost
    this.hold = hold
    this.numPredict = numPredict
    this.runs = runs
  }

  /** The chunks the backend will send, and then nothing more; called once, before the first step. */
  answer(chunks: ReadonlyArray<Arr.NonEmptyReadonlyArray<Frame>>): void {
    const isWhole = chunks.at(-1)?.at(-1)?.done === true
    const frames = Stream.concat(
      Stream.flattenArray(Stream.fromIterable(chunks)),
      isWhole ? Stream.empty : Stream.fail(new BackendFailed({ fault: "cut" }))
    )
    const { hold } = this
    const answer = meterStream(frames, { hold, transcript: undefined, over: () => Effect.void })
    this.#pull = Effect.runSync(Scope.provide(Stream.toPull(answer), this.#scope))
  }

  /** Takes one chunk, as a client that reads. */
  step(): Step {
    if (this.#pull === undefined || this.over) return "ended"
    this.#model.nowMs += this.#model.msBetweenReads
    const exit = Effect.runSyncExit(this.#pull)
    if (Exit.isSuccess(exit)) {
      this.shown.push(...exit.value)
      if (this.shown.at(-1)?.done === true) {
        this.#model.settle(this, this.cost.usage)
        this.#end()
      }
      return "frames"
    }
    const error = Cause.findErrorOption(exit.cause)
    if (error._tag === "None") throw new Error("a defect", { cause: exit.cause })
    if (!Cause.isDone(error.value)) {
      this.error = String(error.value)
      this.#model.settle(this, this.cost.usage)
    }
    this.#end()
    return this.error === undefined ? "ended" : "failed"
  }

  /** The client leaves. */
  leave(): void {
    if (this.over) return
    this.#model.settle(this, this.cost.usageWhenLeft)
    this.#end()
  }

  beat(): void {
    if (!this.over) Effect.runSync(Effect.ignore(this.hold.renew))
  }

  #end(): void {
    this.over = true
    Effect.runSync(Scope.close(this.#scope, Exit.void))
  }
}

export class MeteredModel {
  readonly rates = new Habits()
  nowMs = 0
  msBetweenReads = 200
  /** while true the Meter answers nothing */
  away = false
  /** how often running requests asked for more, or renewed */
  renewals = 0
  spent = 0
  /** by how much prompts were estimated too low, in all */
  underestimated = 0
  readonly claims: Claims
  readonly #counters = new MemoryMeter({ leaseS: 1_000_000 })
  readonly #meter
  #serial = 0
  /** what was settled while the Meter was away */
  #owed: Array<() => void> = []

  /** `speaks`: whether its model is known to speak as it generates */
  constructor(budget: number, speaks = true) {
    if (speaks) this.rates.spoken(key, thinker.name)
    this.claims = {
      account: { group: "g", key },
      limits: { rpm: 1_000_000, tpm: 1_000_000_000, concurrent: 1000 },
      budgets: { total: budget }
    }
    const meter = makeMemory(this.#counters, () => noon)
    this.#meter = {
      ...meter,
      renew: (...args: Parameters<typeof meter.renew>) => {
        this.renewals += 1
        return this.away ? new MeterDown({ cause: "away" }) : meter.renew(...args)
      }
    }
    this.#counters.load(this.claims.account, [{ counter: "total", tokens: 0 }], noon)
  }

  /** undefined: refused. */
  admit({ body, maxTokens, promptEstimate, streamed }: Wish): MeteredRequest | undefined {
    // Nobody is admitted on an account that owes a settlement, nor by a Meter that does not answer.
    if (this.away) return undefined
    const request = callOf({
      body,
      options: {},
      promptEstimate,
      promptBytes: promptEstimate * 4,
      stream: streamed
    }).request
    const speaks = this.rates.speaks(key, thinker.name)
    const [id, plan] = [`r${(this.#serial += 1)}`, outputPlanOf(request, thinker, speaks)]
    const ask = {
      id,
      slot: true,
      ...tokensToHold(plan, promptEstimate, maxTokens, this.rates.usual(key, thinker.name))
    }
    const verdict = this.#counters.reserve(this.claims, ask, noon)
    if (!(verdict instanceof Reserved)) return undefined
    const numPredict = numPredictOf(plan, verdict.reservation, promptEstimate, maxTokens)
    const call = { request, numPredict, plan }
    const timing = plan.collects
      ? undefined
      : new OutputTiming(this.rates, key, thinker.name, () => this.nowMs)
    const cost = new RequestCost()
    cost.hold(reservedFor("m", { call, reservation: verdict.reservation }), 0)
    cost.send(permitFor("m", call), () => {}, timing)
    return new MeteredRequest(
      this,
      cost,
      new Hold(cost, this.#meter, () => Effect.void),
      numPredict,
      plan.runs
    )
  }

  settle(request: MeteredRequest, usage: Usage): void {
    const { cost } = request
    if (cost.ended !== undefined) return
    cost.end(outcomes.answered, this.nowMs)
    const tokens = totalTokens(usage)
    request.charged = usage
    this.spent += tokens
    this.underestimated += Math.max(0, usage.tokensIn - cost.call.promptEstimate)
    const { held } = cost
    if (held === undefined) return
    const tell = () => void this.#counters.settle(held.reservation, tokens, noon)
    if (this.away) this.#owed.push(tell)
    else tell()
  }

  comeBack(): void {
    this.away = false
    for (const tell of this.#owed) tell()
    this.#owed = []
  }

  /** What the Meter takes for spent or held. */
  get counted(): number {
    const { totals } = this.#counters.survey(this.claims.account, noon, noon)
    return totals.total ?? 0
  }
}
