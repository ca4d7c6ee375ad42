/** What is measured is measured by the monotonic clock: who may read the wall clock, and why. */
import { assert, it } from "@effect/vitest"
import { sourcesIn, usesOf } from "../support/sources.ts"

const files = sourcesIn("src", "cli")

/** The wall clock, by every name it has here; and what of Effect measures by it. */
const wallClock =
  /\bDate\.now\b|\bnew Date\(\s*\)|\bDate\(\s*\)|\bcurrentTime(?:Millis|Nanos)(?:Unsafe)?\b|\bDateTime\.now\w*/
const measuredByWallClock =
  /\bcachedWithTTL\b|\bcachedInvalidateWithTTL\b|\b(?:Scoped)?Cache\.make|\bRcMap\.make|\bPool\.make|\blayerStoreMemory\b|\bSchedule\.(?:fixed|windowed|elapsed|during|cron|upTo)\b|\bEffect\.cache\b/

/** Real timestamps, each with the number of its uses. A new one needs a reason, a duration needs `infra/time.ts`. */
const timestamps: Readonly<Record<string, readonly [uses: number, why: string]>> = {
  "src/http/app.ts": [1, "when a request arrived, for its audit row"],
  "src/http/dialect/openai/answer.ts": [1, "`created` of an answer whose backend gave no time"],
  "src/http/dialect/responses/answer.ts": [1, "`created_at` of an answer whose backend gave no time"],
  "src/backend/demo/wire.ts": [2, "`created_at` of the demo backend's frames"],
  "src/ledger/CounterReconciler.ts": [1, "an instant of the day and month that are compared"],
  "src/ledger/budgetGauges.ts": [1, "an instant of the periods that are shown"],
  "src/observability/webhook.ts": [1, "the time that is signed"],
  "src/gates/meter/redis/RedisMeter.ts": [1, "a guess at the store's day, which the store corrects"],
  "src/gates/meter/memory/layer.ts": [1, "the day of a request"],
  "cli/commands/tenants.ts": [1, "whether an extra budget still runs"],
  "cli/checks/database.ts": [1, "the clock of the database is compared with it"],
  "cli/checks/cache.ts": [1, "the clock of Redis is compared with it"]
}

/** They give it no time to measure. */
const timeless: Readonly<Record<string, string>> = {
  "src/infra/time.ts": "remembers for ever, until it is told to forget",
  "src/gates/limits/Budget.ts": "keeps nothing that nobody waits for"
}

it("when a file reads the wall clock, then it is for a timestamp and has a reason", () => {
  assert.match("const now = Date.now()", wallClock)
  assert.match("yield* Clock.currentTimeMillis", wallClock)
  assert.match("new Date().toISOString()", wallClock)
  assert.deepStrictEqual(
    usesOf(files, wallClock),
    Object.fromEntries(Object.entries(timestamps).map(([file, [uses]]) => [file, uses]))
  )
})

it("when Effect would measure by the wall clock, then it has no time to measure", () => {
  assert.sameMembers(Object.keys(usesOf(files, measuredByWallClock)), Object.keys(timeless))
})
