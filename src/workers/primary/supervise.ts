/**
 * The primary: it serves no requests and has no connection to the stores. It starts the workers, hands them new connections
 * in turn (Node does that), and answers what they must agree about.
 */
import cluster from "node:cluster"
import { Effect, Queue, type Scope } from "effect"
import { makeCircuitHost } from "../../backend/CircuitHost.ts"
import type { ReadinessState } from "../../http/health.ts"
import { measured } from "../../infra/time.ts"
import { layerLogging } from "../../observability/logging.ts"
import type { SettingsValues } from "../../Settings.ts"
import { handleSignals } from "../../startup/signals.ts"
import { settingsFrom, type StartupError } from "../../startup/StartupError.ts"
import { toPrimary, toWorker } from "../protocol.ts"
import { type FleetStatus, makeFleet } from "./Fleet.ts"
import { heapFlagsOf } from "./heap.ts"
import type { Member } from "./member.ts"
import { MetricsSum } from "./metricsSum.ts"
import { joinReadiness } from "./readiness.ts"

/** How long a worker may take from its start until it listens. */
const startMs = 30_000
/** What a stop takes beyond drain and grace: last lines, last rows. The same as in `startup/signals.ts`. */
const lastMs = 11_000
/** How long one worker may take for its figures. Then its last ones count. */
const figuresMs = 2000

/** `drainMs`: `SHUTDOWN_DRAIN_MS` with its default. */
const run = Effect.fnUntraced(function* (
  settings: SettingsValues,
  workers: number,
  drainMs: number
): Effect.fn.Return<never, StartupError, Scope.Scope> {
  // A worker runs the file that the primary runs: the sources or the build. Messages are structured clones: JSON has no NaN
  // and no infinity, and metrics have both.
  cluster.setupPrimary({
    serialization: "advanced",
    execArgv: [...process.execArgv, ...heapFlagsOf(workers, process)]
  })
  const members = new Set<Member>()
  const serving = () => [...members].filter(({ state }) => state === "serves")
  const metrics = new MetricsSum<Member>()
  const circuit = yield* makeCircuitHost<Member>(
    { failures: settings.breakerFailures, openMs: settings.breakerOpenMs },
    (view) =>
      Effect.sync(() => {
        for (const { channel } of members) channel.tell(toWorker.circuit, view)
      })
  )

  const exposition = Effect.suspend(() =>
    Effect.forEach(
      serving(),
      (member) =>
        Effect.match(member.channel.ask(toWorker.snapshot, undefined, figuresMs), {
          onFailure: () => undefined,
          onSuccess: (snapshot) => metrics.update(member, snapshot)
        }),
      { concurrency: "unbounded", discard: true }
    )
  ).pipe(Effect.andThen(metrics.exposition))

  const status: FleetStatus = { stopping: false, waiting: 0 }
  const joined = yield* Effect.cachedWithTTL(
    Effect.suspend(() => joinReadiness(serving())),
    "500 millis"
  )
  const readiness = Effect.map(measured(joined), (state): ReadinessState => ({
    ...state,
    stopping: state.stopping || status.stopping,
    workersFailing: state.workersFailing || status.waiting > 0
  }))

  /** Answers what a worker asks. */
  const answer = (member: Member): void => {
    const { channel } = member
    channel.answer(toPrimary.exposition, () => exposition)
    channel.answer(toPrimary.readiness, () => readiness)
    channel.answer(toPrimary.lastSnapshot, (snapshot) => Effect.sync(() => metrics.update(member, snapshot)))
    channel.answer(toPrimary.circuitView, () => Effect.sync(circuit.view))
    channel.answer(toPrimary.circuitState, () => Effect.sync(circuit.state))
    channel.answer(toPrimary.admit, (party) => circuit.admit(member, party))
    channel.answer(toPrimary.waitMs, (party) => Effect.sync(() => circuit.waitMs(party)))
    channel.answer(toPrimary.began, ({ party, pass }) => circuit.began(pass, party))
    channel.answer(toPrimary.report, circuit.report)
    channel.answer(toPrimary.seen, (seen) => Effect.sync(() => circuit.seen(seen)))
  }

  const fleet = yield* makeFleet({
    workers,
    members,
    status,
    leaseS: settings.concurrencyLeaseS,
    startMs,
    stopMs: drainMs + settings.shutdownGraceMs + lastMs,
    joined: answer,
    left: circuit.forget,
    metrics
  })

  const address = yield* Effect.raceFirst(fleet.start, fleet.gaveUp)
  yield* Effect.logInfo(`listening on ${address}`, { workers })

  const asked = yield* Queue.sliding<void>(1)
  const onHangup = () => void Queue.offerUnsafe(asked, undefined)
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", onHangup)),
    () => Effect.sync(() => process.off("SIGHUP", onHangup))
  )
  /** The files of secrets are read again. With settings that cannot be used the old workers stay. */
  const replaceWhenAsked = Queue.take(asked).pipe(
    Effect.andThen(settingsFrom(process.env)),
    Effect.matchEffect({
      onFailure: ({ lines }) => Effect.logError("settings cannot be used, workers not replaced", { lines }),
      onSuccess: () => Effect.andThen(Effect.logInfo("replacing all workers"), fleet.replaceAll)
    }),
    Effect.forever
  )
  return yield* Effect.raceFirst(replaceWhenAsked, fleet.gaveUp)
})

export const supervise = (settings: SettingsValues, workers: number): Effect.Effect<never, StartupError> =>
  Effect.gen(function* () {
    const drainMs = settings.shutdownDrainMs ?? 3000
    yield* handleSignals(drainMs + settings.shutdownGraceMs)
    return yield* run(settings, workers, drainMs).pipe(Effect.scoped)
  }).pipe(Effect.provide(layerLogging(settings, process.stdout.isTTY)))
