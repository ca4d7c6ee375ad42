/** A twin of Redis: the counters and the queue that all gateways share, as memory twins behind a network. */
import { Effect, Layer } from "effect"
import type { Calendar } from "../../../src/domain/Calendar.ts"
import type { CounterOwner, Reservation } from "../../../src/domain/Reservation.ts"
import { MemoryMeter } from "../../../src/gates/meter/memory/MemoryMeter.ts"
import { makeMemory } from "../../../src/gates/meter/memory/layer.ts"
import { Meter, MeterDown, type Surveyed } from "../../../src/gates/meter/Meter.ts"
import type { FairScheduler, Outcome } from "../../../src/gates/queue/FairScheduler.ts"
import { QueueMemory } from "../../../src/gates/queue/memory.ts"
import {
  type Full,
  type Granted,
  type Message,
  QueueStore,
  QueueStoreDown,
  type Ticket,
  type Waiting
} from "../../../src/gates/queue/QueueStore.ts"
import type { Process, Simulation } from "./Simulation.ts"
import { short, Store } from "./Store.ts"

/** How long the client of Redis waits for an answer, in milliseconds. */
const patienceMs = 250

/** The name of an account, of one of its users or models, or of a tenant. */
export const ownerName = ({ group, key = "", model, user = "" }: CounterOwner): string =>
  `${group}/${key}/${user}${model === undefined ? "" : ` for ${model}`}`

/** Who looks on: called at the moment at which the store has done it. */
export interface Onlooker {
  reserved(reservation: Reservation): void
  renewed(reservation: Reservation, used: number, held: number): void
  settled(id: string, used: number): void
  cancelled(id: string): void
  queued(ticket: Ticket, answer: Granted | Waiting | Full): void
  /** messages about other requests: they have a place, or had to make room */
  told(messages: ReadonlyArray<Message>): void
  /** `used`: undefined when it left */
  gone(id: string, used: number | undefined): void
  /** The queue does not know a request that its replica has. */
  forgotten(id: string): void
}

type Listener = (message: Message) => Effect.Effect<void>

const kindOf = ({ key }: Surveyed): string => (key === undefined ? "a tenant" : "an account")

export class Redis extends Store {
  readonly counters: MemoryMeter
  readonly queue: QueueMemory
  readonly leaseS: number
  lostAt = Number.NEGATIVE_INFINITY
  /** when counters of an account were last loaded, by tenant, account and user */
  readonly loadedAt = new Map<string, number>()
  onlooker: Onlooker | undefined
  /** when each process was last told that nothing is lost */
  readonly #reminders = new Map<Process, number>()
  readonly #subscribers = new Map<Process, Listener>()

  constructor(simulation: Simulation, leaseS: number, queueMaxWaitMs: number, calendar: Calendar) {
    super(simulation, "redis")
    this.leaseS = leaseS
    this.counters = new MemoryMeter({ leaseS, queueMaxWaitMs }, (now) => simulation.epoch + now, calendar)
    this.queue = new QueueMemory({ leaseS })
  }

  /** It starts again empty. An older snapshot is as good as nothing: it has another run id, so no counter in it is believed. */
  lose(): void {
    this.drop()
    this.simulation.say(this.name, "starts again and has lost everything")
    this.lostAt = this.simulation.now
    this.counters.clear()
    this.queue.clear()
    this.#reminders.clear()
  }

  /** Runs what is done at once in the store. */
  meterOf(of: Process): Layer.Layer<Meter> {
    const at = makeMemory(this.counters, () => this.simulation.now)
    const lost = (cause: string) => new MeterDown({ cause })
    const inTime = <A>(work: Effect.Effect<A, MeterDown>) =>
      Effect.timeoutOrElse(work, {
        duration: patienceMs,
        orElse: () => Effect.fail(lost(`redis: no answer in ${patienceMs} ms`))
      })
    const send = <A>(says: string, work: Effect.Effect<A, MeterDown>): Effect.Effect<A, MeterDown> =>
      inTime(
        Effect.flatten(
          this.ask(
            of,
            () => says,
            () => Effect.runSyncExit(work),
            lost
          )
        )
      )
    return Layer.succeed(Meter, {
      reserve: (claims, ask) =>
        send(
          `reserves ${ask.tokens} tokens for ${short(ask.id)}`,
          Effect.tap(at.reserve(claims, ask), (verdict) =>
            Effect.sync(() => verdict._tag === "Reserved" && this.onlooker?.reserved(verdict.reservation))
          )
        ),
      renew: (one, used, want) =>
        send(
          `renews ${short(one.id)}, ${used} used, ${want} wanted`,
          Effect.tap(at.renew(one, used, want), ({ held }) =>
            Effect.sync(() => this.onlooker?.renewed(one, used, held))
          )
        ),
      settle: (one, used) =>
        send(
          `settles ${short(one.id)} with ${used} tokens`,
          Effect.tap(at.settle(one, used), () => Effect.sync(() => this.onlooker?.settled(one.id, used)))
        ),
      cancel: (one) =>
        send(
          `cancels ${short(one.id)}`,
          Effect.tap(at.cancel(one), () => Effect.sync(() => this.onlooker?.cancelled(one.id)))
        ),
      peek: (claims) => send("reads what is left", at.peek(claims)),
      load: (owner, loaded) =>
        send(
          `loads ${loaded.map(({ counter, tokens }) => `${counter}=${tokens}`).join(" ")}`,
          Effect.andThen(
            Effect.sync(() => this.loadedAt.set(ownerName(owner), this.simulation.now)),
            at.load(owner, loaded)
          )
        ),
      snapshot: (of, instant) => send(`reads ${kindOf(of)}`, at.snapshot(of, instant)),
      repair: (of, instant, mark, totals) =>
        send(`repairs ${kindOf(of)}`, at.repair(of, instant, mark, totals)),
      hasState: Effect.suspend(() =>
        send(
          "says whether it has lost its state",
          Effect.sync(() => {
            const before = this.#reminders.get(of)
            this.#reminders.set(of, this.simulation.now)
            return before !== undefined && this.simulation.now - before < this.leaseS * 1000
          })
        )
      ),
      ping: send("answers", Effect.void)
    })
  }

  queueOf(of: Process): Layer.Layer<QueueStore> {
    const { dice } = this.simulation
    const lost = (cause: string) => new QueueStoreDown({ cause })
    /** Messages to other replicas may come late or never; a beat repeats them. */
    const publish = ({ replica, ...message }: Message & { readonly replica: string }) => {
      const found = [...this.#subscribers].find(([process]) => process.name === replica)
      if (found === undefined || this.state !== "well" || dice.chance(this.losesReplies)) return
      const [process, listener] = found
      this.simulation.after(this.latencyMs, process, () => {
        this.simulation.say("redis", `tells ${process.name} of ${short(message.id)}`)
        Effect.runForkWith(process.services)(listener(message))
      })
    }
    const send = <A>(says: string, verb: (queue: FairScheduler, now: number) => Outcome<A>) => {
      const work = () => {
        const { now } = this.simulation
        const { answer, messages } = verb(this.queue.scheduler(now), now)
        this.onlooker?.told(messages)
        messages.forEach(publish)
        return answer
      }
      return Effect.timeoutOrElse(
        this.ask(of, () => `queue: ${says}`, work, lost),
        {
          duration: patienceMs,
          orElse: () => Effect.fail(lost("redis: no answer"))
        }
      )
    }
    return Layer.succeed(QueueStore, {
      enter: (ticket, bounds) =>
        send(`${short(ticket.id)} comes`, (queue, now) => {
          const outcome = queue.enter(now, of.name, ticket, bounds)
          this.onlooker?.queued(ticket, outcome.answer)
          return outcome
        }),
      leave: (id, bounds) =>
        send(`${short(id)} leaves`, (queue, now) => {
          this.onlooker?.gone(id, undefined)
          return queue.leave(now, id, bounds)
        }),
      end: (id, used, bounds, loadMs) =>
        send(`${short(id)} ends`, (queue, now) => {
          this.onlooker?.gone(id, used)
          return queue.end(now, id, used, bounds, loadMs)
        }),
      beat: (running, waiting, bounds, seen) =>
        send(`beat, ${running.length} run, ${waiting.length} wait`, (queue, now) => {
          const outcome = queue.beat(now, of.name, running, waiting, bounds, seen)
          for (const id of outcome.answer.unknown) this.onlooker?.forgotten(id)
          return outcome
        }),
      restore: (held, bounds) =>
        send(`gets ${held.length} requests back`, (queue, now) => queue.restore(now, of.name, held, bounds)),
      onMessage: (listener) =>
        Effect.acquireRelease(
          Effect.sync(() => void this.#subscribers.set(of, listener)),
          () => Effect.sync(() => void this.#subscribers.delete(of))
        )
    })
  }
}
