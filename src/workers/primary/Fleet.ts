/**
 * The workers of a gateway: starts them, replaces those that die, replaces all one after the other, and stops them.
 *
 * A worker that ends without being asked is replaced at once (`restarts.ts` bounds how often), and the others give back what
 * it held (`healing.ts`). A worker that has not answered for 15 seconds is killed: it takes connections and serves none.
 */
import { Deferred, Effect, Scope } from "effect"
import { makeMonotonicMs } from "../../infra/time.ts"
import { startupError, StartupError } from "../../startup/StartupError.ts"
import { toWorker } from "../protocol.ts"
import { heal } from "./healing.ts"
import { type Ended, forkMember, type Member } from "./member.ts"
import { Restarts } from "./restarts.ts"
import type { MetricsSum } from "./metricsSum.ts"

/** What is written here is read by others. */
export interface FleetStatus {
  /** whether all workers are asked to stop */
  stopping: boolean
  /** places that stay empty for a while, because workers die again and again */
  waiting: number
}

export interface FleetOptions {
  readonly workers: number
  /** the workers that run; empty at first */
  readonly members: Set<Member>
  readonly status: FleetStatus
  /** `CONCURRENCY_LEASE_S` */
  readonly leaseS: number
  /** how long a worker may take to start, milliseconds */
  readonly startMs: number
  /** how long a worker may take to stop, milliseconds */
  readonly stopMs: number
  /** called for each new worker, before it runs */
  readonly joined: (member: Member) => void
  /** called when a worker has ended */
  readonly left: (member: Member) => Effect.Effect<void>
  readonly metrics: MetricsSum<Member>
}

export interface Fleet {
  /** Starts all workers. Returns the address. */
  readonly start: Effect.Effect<string, StartupError>
  /** Replaces all workers, one after the other: the new one serves before the old one stops. */
  readonly replaceAll: Effect.Effect<void>
  /** Fails when the gateway cannot go on. */
  readonly gaveUp: Effect.Effect<never, StartupError>
}

const askEveryMs = 5000
/** Every so many questions it is asked for its figures, which are kept, so that they are not lost when it dies. */
const figuresEvery = 3
/** After so many questions without an answer a worker is killed. */
const maxSilences = 3

/** When the scope ends, all workers are asked to stop, and their end is waited for. */
export const makeFleet = Effect.fnUntraced(function* (
  options: FleetOptions
): Effect.fn.Return<Fleet, never, Scope.Scope> {
  const nowMs = yield* makeMonotonicMs
  // What the workers ask is answered until the last one has ended.
  const scope = yield* Scope.make()
  const gaveUp = yield* Deferred.make<never, StartupError>()
  const restarts = new Restarts(options.workers)
  const { members, status } = options

  const serving = () => [...members].filter(({ state }) => state === "serves")

  const askForFigures = (member: Member) =>
    Effect.map(member.channel.ask(toWorker.snapshot, undefined, askEveryMs), (snapshot) =>
      options.metrics.update(member, snapshot)
    )

  const lookAfter = Effect.fnUntraced(function* (member: Member) {
    yield* Deferred.await(member.listening)
    let silences = 0
    for (let turn = 0; silences < maxSilences; turn += 1) {
      yield* Effect.sleep(askEveryMs)
      const question =
        turn % figuresEvery === 0
          ? askForFigures(member)
          : member.channel.ask(toWorker.ping, undefined, askEveryMs)
      silences = yield* Effect.match(question, { onFailure: () => silences + 1, onSuccess: () => 0 })
    }
    yield* Effect.logError("worker does not answer, it is killed", { worker: member.identity.number })
    yield* member.kill
  })

  /** Whether another worker has the place of `member`, or is starting there. */
  const isReplaced = ({ identity }: Member): boolean =>
    [...members].some((other) => other.identity.number === identity.number && other.state !== "stops")

  /** Lets the others give back what a dead worker held. */
  const mourn = Effect.fnUntraced(function* (member: Member, { code, signal }: Ended) {
    const { id, mark, number } = member.identity
    options.metrics.died()
    yield* Effect.logError("worker died", { worker: number, code, signal })
    const casualty = { id, mark, accounts: [...member.accounts.values()] }
    yield* Effect.forkIn(heal(casualty, serving, options.leaseS), scope)
  })

  /** Fills the place of a worker that has ended. */
  const refill = Effect.fnUntraced(function* (gone: Member) {
    const next = restarts.died(nowMs())
    if (next === "give up") {
      yield* Deferred.fail(gaveUp, startupError("workers keep dying: see the log lines before this one"))
      return
    }
    if (next.delayMs > 0) {
      status.waiting += 1
      yield* Effect.sleep(next.delayMs)
      status.waiting -= 1
    }
    if (status.stopping || isReplaced(gone)) return
    const { number } = gone.identity
    const member = yield* launch(number, false)
    yield* Effect.matchEffect(listens(member), {
      // When it has ended, its end is another one.
      onFailure: () => member.kill,
      onSuccess: () => Effect.logInfo("worker replaced", { worker: number })
    })
  })

  const ended = Effect.fnUntraced(function* (member: Member, how: Ended) {
    const asked = member.state === "stops"
    members.delete(member)
    yield* options.left(member)
    yield* options.metrics.retire(member)
    if (status.stopping) return
    const { failure } = member
    if (failure !== undefined) {
      // A new worker that takes the place of one that serves may fail.
      return asked ? undefined : yield* Deferred.fail(gaveUp, new StartupError(failure))
    }
    // With code 0 it has ended what it had to do.
    if (how.code !== 0) yield* mourn(member, how)
    if (!asked) yield* refill(member)
  })

  /** Starts a worker, and looks after it until its end in the background. */
  const launch = (number: number, first: boolean): Effect.Effect<Member> =>
    Effect.gen(function* () {
      const started = yield* Deferred.make<Member>()
      const life = Effect.gen(function* () {
        const member = yield* forkMember({ number, of: options.workers, first })
        members.add(member)
        options.joined(member)
        yield* Deferred.succeed(started, member)
        yield* Effect.forkScoped(lookAfter(member))
        return { member, how: yield* Deferred.await(member.ended) }
      }).pipe(
        Effect.scoped,
        Effect.flatMap(({ how, member }) => ended(member, how))
      )
      yield* Effect.forkIn(life, scope)
      return yield* Deferred.await(started)
    })

  /** Succeeds when the worker listens. */
  const listens = (member: Member): Effect.Effect<string, StartupError> =>
    Effect.raceFirst(
      Deferred.await(member.listening),
      Effect.flatMap(Deferred.await(member.ended), ({ code, signal }) =>
        member.failure === undefined
          ? Effect.fail(startupError(`a worker ended at its start (code ${code}, signal ${signal})`))
          : Effect.fail(new StartupError(member.failure))
      )
    ).pipe(
      Effect.timeoutOrElse({
        duration: options.startMs,
        orElse: () => Effect.fail(startupError("a worker did not start in time"))
      })
    )

  /** Asks a worker to stop, and waits for its end. After `stopMs` it is killed. */
  const dismiss = (member: Member, replaced: boolean): Effect.Effect<void> =>
    Effect.suspend(() => {
      member.state = "stops"
      member.channel.tell(toWorker.stop, { replaced })
      return Effect.timeoutOrElse(Effect.asVoid(Deferred.await(member.ended)), {
        duration: options.stopMs,
        orElse: () => member.kill
      })
    })

  const replace = Effect.fnUntraced(function* (number: number) {
    const member = yield* launch(number, false)
    // Until it listens its end is no death: the old one goes on.
    member.state = "stops"
    const outcome = yield* Effect.result(listens(member))
    if (outcome._tag === "Failure") {
      yield* Effect.logError("worker not replaced", { worker: number, reason: outcome.failure.message })
      return yield* member.kill
    }
    member.state = "serves"
    // The old one, or the one that has taken its place meanwhile because it died.
    const others = [...members].filter(
      (one) => one !== member && one.identity.number === number && one.state !== "stops"
    )
    yield* Effect.forEach(others, (one) => dismiss(one, true), { concurrency: "unbounded", discard: true })
    yield* Effect.logInfo("worker replaced", { worker: number })
  })

  /** Stops all workers, and waits for their end. */
  const stop = Effect.suspend(() => {
    status.stopping = true
    return Effect.forEach([...members], (member) => dismiss(member, false), {
      concurrency: "unbounded",
      discard: true
    })
  })
  yield* Effect.addFinalizer((exit) => Effect.andThen(stop, Scope.close(scope, exit)))

  const numbers = Array.from({ length: options.workers }, (_, i) => i + 1)

  return {
    start: Effect.gen(function* () {
      const [number = 1, ...others] = numbers
      const address = yield* listens(yield* launch(number, true))
      yield* Effect.forEach(others, (one) => Effect.flatMap(launch(one, false), listens), {
        concurrency: "unbounded",
        discard: true
      })
      return address
    }),
    replaceAll: Effect.forEach(numbers, (number) => (status.stopping ? Effect.void : replace(number)), {
      discard: true
    }),
    gaveUp: Deferred.await(gaveUp)
  }
})
