/**
 * A world in which one thing happens at a time, and a seed chooses which is next. Time passes only when nothing is due.
 *
 * What happens: a suspended fiber goes on, a timer ends, a message arrives. Each belongs to a process or to the world around
 * the processes. A process that has died does nothing more, and one that is paused does it later.
 */
import { Clock, Context, Duration, Effect, Logger, Random, References, Scheduler } from "effect"
import { RequestIds } from "../../../src/infra/RequestIds.ts"

/** Random numbers of a seed: the same on every machine (sfc32). */
export class Dice {
  #a: number
  #b = 0x9e3779b9
  #c = 0x243f6a88
  #d = 1

  constructor(seed: number) {
    this.#a = seed | 0
    for (let i = 0; i < 12; i += 1) this.next()
  }

  /** 0 to less than 1 */
  next(): number {
    const t = (((this.#a + this.#b) | 0) + this.#d) | 0
    this.#d = (this.#d + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + t) | 0
    return (t >>> 0) / 4294967296
  }

  /** a whole number from 0 to less than `count` */
  below(count: number): number {
    return Math.floor(this.next() * count)
  }

  between(least: number, most: number): number {
    return least + this.below(most - least + 1)
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<A>(list: ReadonlyArray<A>): A | undefined {
    return list[this.below(list.length)]
  }
}

interface Happening {
  readonly of: Process | undefined
  readonly run: () => void
  at: number
  cancelled: boolean
}

/** One line of the trace. */
export interface Told {
  readonly step: number
  readonly at: number
  readonly who: string
  readonly what: string
}

/** A line of which nobody has read the text yet. */
type Said = Omit<Told, "what"> & { readonly what: string | (() => string) }
const toldOf = ({ what, ...rest }: Said): Told => ({
  ...rest,
  what: typeof what === "string" ? what : what()
})

const remembered = 200

export class Simulation {
  readonly dice: Dice
  readonly epoch: number
  /** the next one last; of equal times the first that was scheduled is first */
  readonly #later: Array<Happening> = []
  readonly #due: Array<Happening> = []
  #told: Array<Said> = []
  readonly #tell: ((told: Told) => void) | undefined
  #ids = 0
  /** milliseconds since the start */
  now = 0
  /** what has happened so far */
  step = 0

  /** `epoch`: epoch ms of the start. `tell` gets each line of the trace. */
  constructor(seed: number, epoch: number, tell?: (told: Told) => void) {
    this.dice = new Dice(seed)
    this.epoch = epoch
    this.#tell = tell
  }

  /** Schedules what happens to a process, or to the world. Returns how to take it back. */
  after(ms: number, of: Process | undefined, run: () => void): () => void {
    const happening = { of, run, at: this.now + Math.max(0, ms), cancelled: false }
    if (ms <= 0) this.#due.push(happening)
    else this.#wait(happening)
    return () => {
      happening.cancelled = true
    }
  }

  #wait(happening: Happening): void {
    const later = this.#later.findLastIndex(({ at }) => at > happening.at)
    this.#later.splice(later + 1, 0, happening)
  }

  /** The last lines of the trace. */
  get told(): ReadonlyArray<Told> {
    return this.#told.slice(-remembered).map(toldOf)
  }

  say(who: string, what: string | (() => string)): void {
    const told = { step: this.step, at: this.now, who, what }
    this.#told.push(told)
    if (this.#told.length > 5 * remembered) this.#told = this.#told.slice(-remembered)
    this.#tell?.(toldOf(told))
  }

  newId(): string {
    this.#ids += 1
    return `00000000-0000-7000-8000-${this.#ids.toString(16).padStart(12, "0")}`
  }

  /** Lets one thing happen. Returns whether there was one. */
  advance(): boolean {
    for (;;) {
      // A process needs time for what it does, so timers may end meanwhile.
      if (this.#due.length === 0) this.now = Math.max(this.now, this.#later.at(-1)?.at ?? this.now)
      else if (this.dice.chance(0.02)) this.now += this.dice.between(1, 4)
      while ((this.#later.at(-1)?.at ?? Number.POSITIVE_INFINITY) <= this.now)
        this.#due.push(...this.#later.splice(-1))
      if (this.#due.length === 0) return false
      const at = this.dice.below(this.#due.length)
      const [happening, last] = [this.#due[at], this.#due.pop()]
      if (last !== undefined && at < this.#due.length) this.#due[at] = last
      if (happening === undefined || happening.cancelled || happening.of?.isDead === true) continue
      const pausedUntil = happening.of?.pausedUntil ?? Number.NEGATIVE_INFINITY
      if (pausedUntil > this.now) {
        happening.at = pausedUntil
        this.#wait(happening)
        continue
      }
      this.step += 1
      happening.run()
      return true
    }
  }
}

/** The clock of a process: its wall clock may differ from that of the others. */
class ProcessClock implements Clock.Clock {
  readonly currentTimeMillis = Effect.sync(() => this.currentTimeMillisUnsafe())
  readonly currentTimeNanos = Effect.sync(() => this.currentTimeNanosUnsafe())
  readonly monotonicTimeNanos = Effect.sync(() => this.monotonicTimeNanosUnsafe())
  readonly #process: Process

  constructor(process: Process) {
    this.#process = process
  }

  currentTimeMillisUnsafe(): number {
    const { simulation, skewMs } = this.#process
    return Math.floor(simulation.epoch + simulation.now + skewMs)
  }

  currentTimeNanosUnsafe(): bigint {
    return BigInt(this.currentTimeMillisUnsafe()) * 1_000_000n
  }

  monotonicTimeNanosUnsafe(): bigint {
    return BigInt(Math.round(this.#process.simulation.now * 1e6))
  }

  sleep(duration: Duration.Duration): Effect.Effect<void> {
    const ms = Duration.toMillis(duration)
    if (!Number.isFinite(ms)) return Effect.never
    const { simulation } = this.#process
    return Effect.callback((resume) =>
      Effect.sync(simulation.after(ms, this.#process, () => resume(Effect.void)))
    )
  }
}

/**
 * Effect suspends a fiber after 2048 operations, between any two of them. Here the seed chooses where, and far more often, so that
 * no code relies on two effects that run together. A request listens to its body within the first operations.
 */
const [unbroken, suspended] = [20, 1 / 250] as const

/** One process of the world. Everything that runs with its `services` happens in the order of the seed. */
export class Process {
  readonly simulation: Simulation
  readonly name: string
  readonly skewMs: number
  isDead = false
  pausedUntil = Number.NEGATIVE_INFINITY
  /** what happens to it after some more effects at stores */
  struck: { in: number; readonly what: () => void } | undefined
  /** what it logs as a warning or worse */
  onLog: (level: string, text: string) => void = () => undefined
  /** called for the id of each request */
  onRequest: (id: string) => void = () => undefined

  constructor(simulation: Simulation, name: string, skewMs: number) {
    this.simulation = simulation
    this.name = name
    this.skewMs = skewMs
  }

  /** A store has done what it asked for. */
  onEffect(): void {
    const { struck } = this
    if (struck === undefined || (struck.in -= 1) > 0) return
    this.struck = undefined
    struck.what()
  }

  /** What takes the place of Effect's own scheduler, clock, random numbers and logger. */
  get services(): Context.Context<never> {
    const { simulation } = this
    const dice = new Dice(simulation.dice.below(2 ** 31))
    const dispatcher: Scheduler.SchedulerDispatcher = {
      scheduleTask: (task) => void simulation.after(0, this, task),
      flush: () => undefined
    }
    const logger = Logger.make(({ cause, logLevel, message }) =>
      this.onLog(logLevel, [message, ...cause.reasons].flat().map(textOf).join(" "))
    )
    return Context.empty().pipe(
      Context.add(Scheduler.Scheduler, {
        executionMode: "async",
        shouldYield: ({ currentOpCount }) => currentOpCount > unbroken && dice.chance(suspended),
        makeDispatcher: () => dispatcher
      }),
      Context.add(Clock.Clock, new ProcessClock(this)),
      Context.add(Random.Random, {
        nextDoubleUnsafe: () => dice.next(),
        nextIntUnsafe: () => dice.between(-(2 ** 31), 2 ** 31 - 1)
      }),
      Context.add(RequestIds, () => {
        const id = simulation.newId()
        this.onRequest(id)
        return id
      }),
      Context.add(Logger.CurrentLoggers, new Set([logger])),
      Context.add(References.MinimumLogLevel, "Warn"),
      Context.add(References.TracerEnabled, false)
    )
  }
}

const textOf = (part: unknown): string => {
  if (typeof part === "string") return part
  if (part instanceof Error) return part.message
  const text = JSON.stringify(part)
  return text === undefined ? String(part) : text.slice(0, 300)
}
