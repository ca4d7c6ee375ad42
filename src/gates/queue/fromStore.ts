/** The queue on a `QueueStore`, and the layer without a queue. */
import { Deferred, Duration, Effect, Layer } from "effect"
import { CapacityExceeded, type ShuttingDown, Unavailable } from "../../domain/Errors.ts"
import { Drain } from "../../infra/Drain.ts"
import { Metrics } from "../../observability/Metrics.ts"
import { makeMonotonicMs } from "../../infra/time.ts"
import { background, later } from "../../observability/background.ts"
import { type Evidence, type Facts, seal } from "../../domain/Evidence.ts"
import { FairQueue, type QueueStatus, type Used } from "./FairQueue.ts"
import {
  baseOf,
  type Bounds,
  Full,
  type Held,
  type Message,
  type ModelUse,
  QueueStore,
  type QueueStoreDown,
  type Ticket,
  Waiting,
  maxListed
} from "./QueueStore.ts"

export interface FairQueueOptions extends Bounds {
  /** how long a request may wait, milliseconds (`QUEUE_MAX_WAIT_MS`) */
  readonly maxWaitMs: number
}

/** Milliseconds between two beats. After a loss the store waits for more than two of them. */
export const beatMs = 1000

/** A beat that comes for a time of the store comes a little later than that. */
const lateMs = 5

/** With a window it would be another load. */
const loadedOf = (models: ReadonlyArray<ModelUse>): ReadonlyArray<string> =>
  models.flatMap(({ name, resident }) => (resident && name === baseOf(name) ? [name] : []))

const unavailable = ({ cause }: QueueStoreDown) => new Unavailable({ gate: "Queue", cause })

const withoutPlace = (reserved: Evidence<"Limiter">) => seal.Queue(reserved, { place: undefined })

/** What the server loads: a model with another window is another load. */
const loadOf = ({ model, request }: Facts<"Limiter">): string => {
  const window = request.options["num_ctx"]
  return typeof window === "number"
    ? `${model.name} ${Math.min(window, model.contextLength ?? window)}`
    : model.name
}

const ticketOf = ({ facts }: Evidence<"Limiter">): Ticket => ({
  id: facts.reservation.id,
  tenant: facts.caller.tenantId,
  // A user with an account of its own waits in a line of its own. A rotated key and the key before it are one account.
  key: facts.reservation.claims.user?.id ?? facts.caller.accountId,
  model: loadOf(facts),
  weight: facts.caller.weight,
  priority: facts.caller.priority,
  cost: Math.max(1, facts.expectedTokens)
})

type Refused = CapacityExceeded | ShuttingDown | Unavailable

/** One request of this replica in the store. */
interface Local {
  readonly ticket: Ticket
  /** with whether its model was loaded; undefined: not known */
  readonly turn: Deferred.Deferred<boolean | undefined, Refused>
  /** number in the queue; undefined once it has a place at the backend */
  order: number | undefined
  /** whether the store has answered or given a place; before that, it may not have the request */
  known: boolean
}

const make = Effect.fnUntraced(function* (options: FairQueueOptions) {
  const metrics = yield* Metrics
  const drain = yield* Drain
  const store = yield* QueueStore
  const now = yield* makeMonotonicMs
  const locals = new Map<string, Local>()
  let models: ReadonlyArray<ModelUse> = []
  /** when the store had them */
  let modelsAt = 0
  /** a beat comes when a lease ends, or the store gives places again: others wait for that */
  let pauseMs = beatMs
  /** what the model server has loaded, until the store knows it */
  let seen: { readonly names: ReadonlyArray<string>; readonly at: number } | undefined

  const hear = ({ id, loaded, retryAfterS }: Message): Effect.Effect<void> =>
    Effect.suspend(() => {
      const local = locals.get(id)
      if (local === undefined) return Effect.void
      if (retryAfterS !== undefined) {
        // The store has forgotten the request already.
        locals.delete(id)
        return Effect.asVoid(Deferred.fail(local.turn, new CapacityExceeded({ retryAfterS })))
      }
      local.order = undefined
      local.known = true
      return Effect.asVoid(Deferred.succeed(local.turn, loaded))
    })
  yield* store.onMessage(hear)

  /** When the store misses the end of a request, two beats without the request report it. */
  const reportOver = <A>(report: Effect.Effect<A, QueueStoreDown>, otherwise: A): Effect.Effect<A> =>
    Effect.catch(report, ({ cause }) =>
      Effect.as(Effect.logDebug("place in the queue not released", cause), otherwise)
    )

  /**
   * A request whose wait was too long has already left when its failure passes `onError`, so the store gets one message.
   */
  const leave = (id: string): Effect.Effect<number> =>
    Effect.suspend(() => (locals.delete(id) ? reportOver(store.leave(id, options), 1) : Effect.succeed(1)))

  const end = ({ id, model }: Ticket, used: () => Used): Effect.Effect<number> =>
    Effect.suspend(() => {
      locals.delete(id)
      const { loadMs, tokens } = used()
      return Effect.tap(reportOver(store.end(id, tokens, options, loadMs), 0), (ms) =>
        metrics.modelLoaded(model, ms)
      )
    })

  const waitForTurn = (
    local: Local,
    { facts }: Evidence<"Limiter">
  ): Effect.Effect<boolean | undefined, Refused> =>
    Effect.acquireUseRelease(
      Effect.sync(() => drain.onCut((why) => Deferred.doneUnsafe(local.turn, Effect.fail(why)), facts)),
      () => Deferred.await(local.turn),
      (unregister) => Effect.sync(unregister)
    ).pipe(
      Effect.timeoutOrElse({
        duration: Duration.millis(options.maxWaitMs),
        orElse: () =>
          Effect.flatMap(leave(local.ticket.id), (retryAfterS) => new CapacityExceeded({ retryAfterS }))
      })
    )

  /** `wait` may be interrupted. */
  const take = Effect.fnUntraced(function* (
    reserved: Evidence<"Limiter">,
    used: () => Used,
    wait: (local: Local) => ReturnType<typeof waitForTurn>
  ) {
    if (!reserved.facts.reservation.slot) return withoutPlace(reserved)
    const [since, ticket] = [now(), ticketOf(reserved)]
    const turn = yield* Deferred.make<boolean | undefined, Refused>()
    const local: Local = { ticket, turn, order: undefined, known: false }
    locals.set(ticket.id, local)
    const answer = yield* store.enter(ticket, options).pipe(
      // It may have got a place all the same.
      Effect.tapError(() => leave(ticket.id)),
      Effect.mapError(unavailable)
    )
    if (answer instanceof Full) {
      locals.delete(ticket.id)
      return yield* new CapacityExceeded({ retryAfterS: answer.retryAfterS })
    }
    let loaded = answer instanceof Waiting ? undefined : answer.loaded
    if (answer instanceof Waiting) {
      // The message about its place, or that it was displaced, may come before the answer that it waits.
      if (!local.known) local.order = answer.order
      local.known = true
      loaded = yield* wait(local).pipe(Effect.onError(() => leave(ticket.id)))
    }
    local.known = true
    // The end of the call and the end of the request both wait for the one answer.
    const giveBack = yield* Effect.cached(
      Effect.suspend(() => (locals.has(ticket.id) ? end(ticket, used) : Effect.succeed(0)))
    )
    yield* Effect.addFinalizer(() => giveBack)
    return seal.Queue(reserved, {
      place: { queuedMs: now() - since, loaded, giveBack }
    })
  })
  const enter = (reserved: Evidence<"Limiter">, used: () => Used) =>
    Effect.uninterruptibleMask((restore) =>
      take(reserved, used, (local) => restore(waitForTurn(local, reserved)))
    )

  /**
   * It is sent without requests too. A store without state, as a new Redis, gives no places for a while, which begins with the
   * first call. So it begins with the process, or with the loss, and the next request need not wait for it.
   */
  const beat = Effect.gen(function* () {
    const running: Array<string> = []
    const waiting: Array<string> = []
    for (const [id, { known, order }] of locals) {
      if (known) (order === undefined ? running : waiting).push(id)
    }
    pauseMs = beatMs
    const sent = seen
    const told = sent && { names: sent.names, agoMs: now() - sent.at }
    const beaten = yield* store.beat(running, waiting, options, told)
    const { changesInMs, messages, unknown } = beaten
    if (seen === sent) seen = undefined
    // The store may have lost its state: it learns what was loaded before it gives places again.
    if (unknown.length > 0) seen ??= { names: loadedOf(models), at: modelsAt }
    models = beaten.models
    modelsAt = now()
    // Others wait for what happens then, as for a place.
    pauseMs = Math.min(beatMs, changesInMs + lateMs)
    for (const message of messages) yield* hear(message)
    // Requests that ended meanwhile are not given back.
    const held: ReadonlyArray<Held> = unknown.flatMap((id) => {
      const local = locals.get(id)
      return local === undefined ? [] : [{ ticket: local.ticket, order: local.order }]
    })
    if (held.length > 0) yield* store.restore(held, options)
  })
  /** Refuses all waiting requests, because their turn is unknown. */
  const refuseWaiting = (down: QueueStoreDown) =>
    Effect.suspend(() =>
      Effect.forEach(
        [...locals.values()].filter(({ order }) => order !== undefined),
        ({ turn }) => Deferred.fail(turn, unavailable(down)),
        { discard: true }
      )
    )
  // The connection of a process that has just begun is not ready.
  yield* background(
    "queue_beat",
    Effect.tapError(beat, refuseWaiting),
    later({ pause: () => Effect.sleep(pauseMs) })
  )

  const status = (): QueueStatus => {
    const waiting = new Map<string, number>()
    let running = 0
    for (const { known, order, ticket } of locals.values()) {
      if (!known) continue
      if (order === undefined) running += 1
      else waiting.set(ticket.tenant, (waiting.get(ticket.tenant) ?? 0) + 1)
    }
    return { running, waiting, models }
  }

  const seeLoaded = (names: ReadonlyArray<string>, agoMs: number) => {
    seen = { names: names.slice(0, maxListed), at: now() - agoMs }
  }

  return FairQueue.of({ limited: true, enter, seeLoaded, status })
})

/** With `BACKEND_MAX_CONCURRENT`. */
export const layerFromStore = (
  options: FairQueueOptions
): Layer.Layer<FairQueue, never, Drain | QueueStore | Metrics> => Layer.effect(FairQueue, make(options))

/** Without `BACKEND_MAX_CONCURRENT` requests do not wait here; the backend queues them itself. */
export const layerNone: Layer.Layer<FairQueue> = Layer.succeed(
  FairQueue,
  FairQueue.of({
    limited: false,
    enter: (reserved) => Effect.succeed(withoutPlace(reserved)),
    seeLoaded: () => undefined,
    status: () => ({ running: 0, waiting: new Map(), models: [] })
  })
)
