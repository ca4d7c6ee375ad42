/** Work in the background: one place runs it, and its failures are seen. */
import { assert, it } from "@effect/vitest"
import { Effect, Exit, Layer, Logger, References, Scope } from "effect"
import { TestClock } from "effect/testing"
import { backgroundTasks, layer as layerMetrics, Metrics } from "../../src/observability/Metrics.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import { background, later, spaced } from "../../src/observability/background.ts"
import { codeOf, sourcesIn, usesOf } from "../support/sources.ts"
import { testWith } from "../support/testWith.ts"

const home = "src/observability/background.ts"

/** What makes a loop, or a fiber that nobody waits for. */
const loose =
  /\bEffect\.(?:repeat|repeatOrElse|schedule|scheduleFrom|forever|forkScoped|forkDetach|forkDaemon|forkIn)\b|\bsetInterval\(|\brunFork(?:With)?\b|\bFiberSet\.|\bFiberMap\./

/** Not loops: each with the number of its uses, and who hears of a failure. */
const allowed: Readonly<Record<string, readonly [uses: number, why: string]>> = {
  "src/serve.ts": [
    1,
    "looks for a model server until there is one; a look that fails is a look that found nothing"
  ],
  "src/startup/dependencies.ts": [1, "the loop of that look"],
  "src/replicas/timeZone.ts": [
    1,
    "another zone ends the process; a store that cannot be asked is told by readiness"
  ],
  "src/infra/time.ts": [2, "a deadline, whose caller gets the outcome, and the end of its work"],
  "src/infra/Redis.ts": [2, "logs what ioredis says"],
  "src/infra/currentUrl.ts": [1, "logs a file that a client of a store could not use"],
  "src/infra/batchCalls.ts": [1, "one batch, whose callers hear how it went"],
  "src/audit/GroupCommit.ts": [
    4,
    "whoever offered a row hears how it went, and lanes count what fails; ending late waits cannot fail"
  ],
  "src/backend/ollama/client.ts": [2, "reads of one answer, whose caller gets how they ended"],
  "src/gates/keys/KeyStateCache.ts": [1, "one read, whose askers hear how it went"],
  "src/gates/keys/postgres.ts": [1, "one measurement for the metrics"],
  "src/gates/keys/SecretVerifier.ts": [1, "jobs, whose askers hear how it went"],
  "src/http/turns.ts": [1, "the pause after a turn, which gives it to the next"],
  "src/http/handle.ts": [1, "one call, whose request waits for how it ended"],
  "src/request/meterStream.ts": [1, "reads one answer, whose reader gets how it ended"],
  "src/http/endRequest.ts": [1, "tells a client that it waits, until its answer begins"],
  "src/http/Server.ts": [1, "the shutdown, which is waited for"],
  "src/audit/Tally.ts": [1, "ends when nothing is left to count, and the next refusal starts another"],
  "src/http/server/Tarpit.ts": [2, "gives out turns; neither of its two steps can fail"],
  "src/http/server/connections.ts": [1, "a throw in a timer of Node ends the process: not silent"],
  "src/gates/limits/SettlementQueue.ts": [5, "tries end, and what is given up is counted and logged"]
}

const files = sourcesIn("src")

it("when something runs again and again, then observability/background.ts runs it", () => {
  assert.match("Effect.repeat(Schedule.spaced(1))", loose)
  assert.match("setInterval(look, 1)", loose)
  assert.deepStrictEqual(
    usesOf(
      files.filter((file) => file !== home),
      loose
    ),
    Object.fromEntries(Object.entries(allowed).map(([file, [count]]) => [file, count]))
  )
})

it("when a task has a name, then the name is used, so that no failure is counted under another's", () => {
  const used = new Set(
    files.flatMap((file) =>
      [
        ...codeOf(file).matchAll(/\b(?:background|listen|makeOutage|lane|rowLane|compareEvery)\(\s*"(\w+)"/g)
      ].map(([, task]) => task)
    )
  )
  assert.deepStrictEqual(
    backgroundTasks.filter((task) => !used.has(task)),
    []
  )
})

it("when a service is told of something, then it is required and has no default that does nothing", () => {
  const silent = files.filter((file) => /defaultValue: \(\) => \(\{[^}]*=> undefined/.test(codeOf(file)))
  assert.deepStrictEqual(silent, [])
})

/** Runs `work` once a second and hears what is logged. */
const running = Effect.fnUntraced(function* (
  work: Effect.Effect<unknown, unknown>,
  first: "now" | "later" = "now"
) {
  const lines: Array<{ readonly level: string; readonly message: string; readonly task: string }> = []
  const ear = Logger.make<unknown, void>((options) => void lines.push(JSON.parse(jsonLine.log(options))))
  const scope = yield* Scope.make()
  const pace = spaced(1000)
  yield* background("crash_recovery", work, first === "now" ? pace : later(pace)).pipe(
    Scope.provide(scope),
    Effect.provide(Layer.mergeAll(Logger.layer([ear]), Layer.succeed(References.MinimumLogLevel, "Info")))
  )
  const counted = Effect.map((yield* Metrics).exposition, (text) =>
    Number(/tollgate_background_failures_total\{task="crash_recovery"\} (\d+)/.exec(text)?.[1])
  )
  return { lines, counted, stop: Scope.close(scope, Exit.void) }
})

const failures: Readonly<Record<string, Effect.Effect<never, string>>> = {
  fails: Effect.fail("down"),
  breaks: Effect.die(new Error("a bug")),
  "is interrupted from within": Effect.interrupt
}

const test = testWith(it.effect, Layer.fresh(layerMetrics))

for (const [how, failure] of Object.entries(failures)) {
  test(`when a run ${how}, then it is not the last, it is counted each time and logged once`, function* () {
    let [runs, down] = [0, true]
    const work = Effect.suspend(() => {
      runs += 1
      return down ? failure : Effect.void
    })
    const { counted, lines, stop } = yield* running(work)
    yield* TestClock.adjust("9 seconds")
    assert.strictEqual(runs, 10)
    assert.strictEqual(yield* counted, 10)
    assert.deepStrictEqual(
      lines.map(({ level }) => level),
      ["warn"]
    )
    down = false
    yield* TestClock.adjust("5 seconds")
    assert.deepStrictEqual(
      lines.map(({ level }) => level),
      ["warn", "info"]
    )
    down = true
    yield* TestClock.adjust("5 seconds")
    assert.deepStrictEqual(
      lines.map(({ level, message, task }) => `${level} ${message} ${task}`),
      [
        "warn background task failed crash_recovery",
        "info background task works again crash_recovery",
        "warn background task failed crash_recovery"
      ]
    )
    yield* stop
    const [before] = [runs]
    yield* TestClock.adjust("1 minute")
    assert.strictEqual(runs, before, "it ends with its scope, and not before")
  })
}

test("when the first run waits, then nothing happens before the pause", function* () {
  let runs = 0
  yield* running(
    Effect.sync(() => void (runs += 1)),
    "later"
  )
  yield* TestClock.adjust("999 millis")
  assert.strictEqual(runs, 0)
  yield* TestClock.adjust("1 millis")
  assert.strictEqual(runs, 1)
})
