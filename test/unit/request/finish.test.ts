/** What the end of a request gives back, and what it logs. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { layerMemory as layerAudit } from "../../support/twins/Audit.ts"
import { seal } from "../../../src/domain/Evidence.ts"
import { outcomes } from "../../../src/domain/Outcome.ts"
import { SettlementQueue } from "../../../src/gates/limits/SettlementQueue.ts"
import { ModelHabits } from "../../../src/gates/limits/ModelHabits.ts"
import { Meter } from "../../../src/gates/meter/Meter.ts"
import { layerMemory as layerMeter } from "../../../src/gates/meter/memory/layer.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { requestLine, RequestLines } from "../../../src/observability/logging.ts"
import { type Ending, makeFinish } from "../../../src/request/finish.ts"
import { RequestContext } from "../../../src/request/RequestContext.ts"
import { arrivalOf, reservedFor } from "../../support/permits.ts"
import { testWith } from "../../support/testWith.ts"

/** Writes down how a reservation ends. */
const layerWatched = (did: Array<string>) =>
  Layer.effect(
    Meter,
    Effect.map(Meter, (meter) => ({
      ...meter,
      cancel: (reservation) =>
        Effect.andThen(
          Effect.sync(() => did.push("cancelled")),
          meter.cancel(reservation)
        ),
      settle: (...of) =>
        Effect.andThen(
          Effect.sync(() => did.push("charged")),
          meter.settle(...of)
        )
    }))
  ).pipe(Layer.provide(layerMeter({ leaseS: 30 })))

/** An admitted request, what its end did to it in order, and the log. */
const world = Effect.gen(function* () {
  const did: Array<string> = []
  const lines: Array<string> = []
  const ear = Logger.layer([Logger.make(({ message }) => void lines.push(String([message].flat()[0])))])
  const services = yield* Layer.build(
    Layer.mergeAll(
      layerAudit,
      layerWatched(did),
      ModelHabits.layer,
      SettlementQueue.layer({ drainMs: 0 }).pipe(Layer.provide(Metrics.layer)),
      Metrics.layer
    )
  )
  const finish = yield* makeFinish.pipe(
    Effect.provideContext(services),
    Effect.provideService(RequestLines, requestLine)
  )
  const context = new RequestContext(arrivalOf("01a1fe92-0000-7000-8000-00000000000a"), 0, undefined)
  const reserved = reservedFor("m", { arrival: context.arrival })
  context.cost.hold(reserved, 0)
  const giveBack = Effect.sync(() => did.push("place given back"))
  const queued = seal.Queue(reserved, { place: { queuedMs: 0, loaded: undefined, giveBack } })
  const end = (how: Omit<Ending, "outcome"> & Partial<Ending>) =>
    finish(context, { outcome: outcomes.answered, ...how }).pipe(Effect.provide(ear))
  return { context, did, end, lines, queued }
})

const test = testWith(it.effect)

test("when a request ends, then its place is given back, and one line is logged", function* () {
  const { context, did, end, lines, queued } = yield* world
  context.cost.facts = queued.facts
  yield* end({ row: "own" })
  assert.deepStrictEqual(did, ["place given back", "cancelled"])
  assert.deepStrictEqual(lines, ["request"])
})

test("when a refusal shares its row with others, then it has no log line", function* () {
  const { end, lines } = yield* world
  yield* end({ row: "shared" })
  assert.deepStrictEqual(lines, [])
})

test("when a client leaves while its intent is written, then its row is its own, which ends the intent", function* () {
  const { context, end, lines, queued } = yield* world
  context.cost.facts = queued.facts
  yield* end({ outcome: outcomes.clientLeft, row: "shared" })
  assert.deepStrictEqual(lines, ["request"])
})

test("when a request ends before its call, then it is free if the gateway refused it, and charged if its client left", function* () {
  const endOf = Effect.fnUntraced(function* (outcome: Ending["outcome"]) {
    const { did, end } = yield* world
    yield* end({ row: "own", outcome })
    return did
  })
  assert.include(yield* endOf(outcomes.unavailable), "cancelled")
  assert.include(yield* endOf(outcomes.clientLeft), "charged")
})
