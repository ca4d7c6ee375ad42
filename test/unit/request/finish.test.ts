/** The log line and the audit row of a request at its end. */
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { Audit } from "../../../src/audit/Audit.ts"
import { outcomes } from "../../../src/domain/Outcome.ts"
import { RequestLines } from "../../../src/observability/requestLine.ts"
import { makeFinish } from "../../../src/request/finish.ts"
import { makeRequestContext } from "../../../src/request/RequestContext.ts"
import { arrivalOf, verified } from "../../support/permits.ts"
import { layerPorts } from "../../support/ports.ts"

/** Ends a request whose client left with the row `row`. Returns what was called and logged. */
const leave = (row: "own" | "shared", opened: boolean) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    const note = (what: string) => Effect.sync(() => void seen.push(what))
    const audit = Audit.of({
      ...(yield* Audit),
      close: () => Effect.as(note("row closed"), Effect.void),
      tally: () => note("tallied"),
      refuse: () => note("row of its own")
    })
    const capture = Logger.make<unknown, void>(
      ({ message }) => void seen.push(`log ${String(message).split(",")[0]}`)
    )
    const { finish } = yield* Effect.provideService(makeFinish, Audit, audit)
    const context = makeRequestContext(arrivalOf("01a1fe92-0000-7000-8000-00000000000b"), 0, true)
    context.identify(verified())
    if (opened) context.open()
    yield* Effect.provide(
      finish(context, { outcome: outcomes.clientLeft, row, slot: "freed" }),
      Logger.layer([capture])
    )
    return seen
  }).pipe(Effect.provide(Layer.mergeAll(layerPorts, Layer.succeed(RequestLines, true))))

it.effect("when a refusal shares its row, then it is tallied and has no log line", () =>
  Effect.map(leave("shared", false), (seen) => assert.deepStrictEqual(seen, ["tallied"]))
)

it.effect("when a refusal has its own row, then it has a log line too", () =>
  Effect.map(leave("own", false), (seen) => assert.deepStrictEqual(seen, ["log request", "row of its own"]))
)

it.effect(
  "when the client leaves an opened request while its key has no free work, then it still has its row and its log line",
  () =>
    Effect.map(leave("shared", true), (seen) => assert.deepStrictEqual(seen, ["log request", "row closed"]))
)
