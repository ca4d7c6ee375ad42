/** A request of a process that died, and that nobody can end. The simulation has those that others end (docs/simulation.md). */
import { assert, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger } from "effect"
import { jsonLine } from "../../src/observability/logging.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { layerCrashRecovery } from "../../src/ledger/CrashRecovery.ts"
import { noReconciler } from "../support/noReconciler.ts"
import { hasIntent, storedRow } from "../support/auditDatabase.ts"
import { another } from "../support/anotherAudit.ts"
import { eventually } from "../support/Gateway.ts"
import { intentOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { queuedFor } from "../support/permits.ts"
import { testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const test = testWith(it.live, TestPostgres)

test("when an intent cannot be closed, then it delays no other, and it is seen", function* () {
  const [good, bad] = [intentOf(), intentOf()]
  yield* Effect.scoped(
    Effect.gen(function* () {
      const audit = yield* another({ leaseS: 1, drainMs: 0 })
      yield* audit.open(queuedFor(bad))
      yield* audit.open(queuedFor(good))
    })
  )
  // A row the log does not take, whatever is tried.
  yield* sql`ALTER TABLE intents DROP CONSTRAINT intents_tokens_out_check`
  yield* sql`UPDATE intents SET tokens_out = -1 WHERE request_id = ${bad.arrival.requestId}::text::uuid`
  const lines: Array<string> = []
  const ear = Logger.layer([Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))])
  const built = yield* Layer.build(
    layerCrashRecovery({ leaseS: 1, everyS: 0.1 }).pipe(
      Layer.provide(noReconciler),
      Layer.provideMerge(Layer.fresh(Metrics.layer)),
      Layer.provideMerge(ear)
    )
  )
  const row = yield* eventually(storedRow(good.arrival.requestId), Boolean)
  assert.deepInclude(row, { status: 500, error_type: "aborted" })
  assert.isTrue(yield* hasIntent(bad.arrival.requestId))
  // It is logged once with its id, and counted for as long as it is there.
  const metrics = Effect.suspend(() => Context.get(built, Metrics.Metrics).exposition)
  const failures = (text: string) => Number(/failures_total\{task="crash_recovery"\} (\d+)/.exec(text)?.[1])
  const shown = yield* eventually(
    metrics,
    (text) => failures(text) > 1 && text.includes("tollgate_intents_stuck 1\n")
  )
  assert.include(shown, "tollgate_intents_stuck 1\n")
  assert.isAbove(failures(shown), 1)
  const named = (id: string) => lines.filter((line) => line.includes("cannot be closed") && line.includes(id))
  assert.lengthOf(named(bad.arrival.requestId), 1)
  assert.lengthOf(named(good.arrival.requestId), 0)
  yield* sql`DELETE FROM intents`
  assert.include(
    yield* eventually(metrics, (text) => text.includes("tollgate_intents_stuck 0\n")),
    "tollgate_intents_stuck 0\n"
  )
})
