/** A scripted model server. It answers as the seed chooses: whole, in pieces, at its end only, wrong, late, or not at all. */
import { Array as Arr, Cause, Effect, type Pull, type Scope, Stream } from "effect"
import type { MemoryScript } from "../twins/Backend.ts"
import { BackendFailed } from "../../../src/domain/Errors.ts"
import type { Facts } from "../../../src/domain/Evidence.ts"
import type { Frame } from "../../../src/domain/Frame.ts"
import { modelNamed } from "../permits.ts"
import type { Process, Simulation } from "./Simulation.ts"
import { short } from "./Store.ts"

const models = ["m:latest", "n:latest"].map(modelNamed)
const createdAt = "2026-01-01T00:00:00.000000Z"

/** One call that arrived. */
export interface Call {
  readonly id: string
  readonly of: Process
  readonly facts: Facts<"Audit">
}

export class ModelServer {
  readonly simulation: Simulation
  #isUp = true
  /** when it last came back, or gave an answer that was wrong in some way */
  troubledAt = Number.NEGATIVE_INFINITY
  /** how likely it is that an answer is wrong in some way */
  errs = 0
  /** It answers at once, because only the end of the seed is waited for. */
  hurries = false
  /** calls that it works on */
  readonly running = new Map<string, Call>()
  /** Called when a call arrives. */
  onCall: (call: Call) => void = () => undefined
  /** Called when a process sends a call, and when that call turns out to be an outage, or something better. */
  onSent: (of: Process) => void = () => undefined
  onOutage: (of: Process) => void = () => undefined
  onProgress: (of: Process) => void = () => undefined

  constructor(simulation: Simulation) {
    this.simulation = simulation
  }

  setUp(isUp: boolean): void {
    if (isUp === this.#isUp) return
    this.simulation.say("model", isUp ? "is up" : "is down")
    this.#isUp = isUp
    this.troubledAt = this.simulation.now
  }

  #wait(ms: number, of: Process): Effect.Effect<void> {
    return Effect.callback((resume) => Effect.sync(this.simulation.after(ms, of, () => resume(Effect.void))))
  }

  /** The call arrives, also when its process is paused meanwhile. Returns whether the server is there. */
  #deliver(call: Call): Effect.Effect<boolean> {
    const { simulation } = this
    return Effect.callback((resume) => {
      const arrive = (): void => {
        const isUp = this.#isUp
        if (isUp) {
          simulation.say("model", `gets ${short(call.id)}`)
          this.onCall(call)
          if (!call.of.isDead) this.running.set(call.id, call)
        }
        simulation.after(0, call.of, () => resume(Effect.succeed(isUp)))
      }
      const cancel = simulation.after(simulation.dice.between(0, 3), undefined, arrive)
      return Effect.sync(() => {
        cancel()
        this.running.delete(call.id)
      })
    })
  }

  scriptOf(of: Process): MemoryScript {
    const { dice } = this.simulation
    const unreachable = Effect.suspend(() => new BackendFailed({ fault: "unreachable" }))
    return {
      models: Effect.andThen(
        this.#wait(dice.between(0, 5), of),
        Effect.suspend(() => (this.#isUp ? Effect.succeed(models) : unreachable))
      ),
      describe: () => Effect.as(this.#wait(1, of), { capabilities: ["completion"], contextLength: 8192 }),
      reply: (_, facts) =>
        Effect.gen({ self: this }, function* () {
          this.onSent(of)
          const isThere = yield* this.#deliver({ id: facts.arrival.requestId, of, facts })
          if (!isThere) this.onOutage(of)
          return yield* isThere ? this.#answer(of, facts) : unreachable
        })
    }
  }

  readonly #answer = Effect.fnUntraced(
    { self: this },
    function* (
      of: Process,
      facts: Facts<"Audit">
    ): Effect.fn.Return<Stream.Stream<Frame, BackendFailed>, BackendFailed, Scope.Scope> {
      const { simulation } = this
      const { dice } = simulation
      const id = facts.arrival.requestId
      const errs = dice.chance(this.errs) ? dice.between(1, 8) : 0
      const tokens = Math.min(
        facts.call.numPredict,
        dice.chance(0.2) ? dice.between(30, 120) : dice.between(1, 30)
      )
      const slow = dice.pick([1, 10, 40, 150]) ?? 1
      const pace = () => (this.hurries ? 1 : slow)
      const says = (what: string) => simulation.say("model", `${what} ${short(id)}`)
      const progress = () => this.onProgress(of)
      progress()
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          this.running.delete(id)
          if (errs > 0) this.troubledAt = simulation.now
          progress()
        })
      )
      yield* this.#wait(dice.between(1, 4 * pace()), of)
      if (errs === 1)
        return yield* Effect.andThen(
          Effect.sync(() => says("refuses with 500")),
          new BackendFailed({ fault: "status" })
        )
      if (errs === 2) {
        says("is silent to")
        yield* this.#wait(20_000, of)
        return yield* new BackendFailed({ fault: "timeout" })
      }
      const heldBack = errs === 3
      const cutAt = errs === 4 ? dice.below(tokens + 1) : Number.POSITIVE_INFINITY
      const counts =
        errs === 5
          ? {}
          : {
              promptEvalCount: errs === 6 ? (dice.pick([0, 1, 1e9]) ?? 0) : facts.request.promptEstimate,
              evalCount: errs === 7 ? (dice.pick([0, 1, tokens * 2, 1e9]) ?? 0) : tokens
            }
      // What the adapter adds when the server ends without its final frame.
      const ending = errs === 8 ? { doneReason: "length" } : { doneReason: "stop", ...counts }
      const final: Frame = { createdAt, text: "", done: true, ...ending }
      let sent = 0
      if (heldBack) yield* this.#wait(tokens * pace(), of)
      const next = Effect.suspend((): Pull.Pull<Arr.NonEmptyReadonlyArray<Frame>, BackendFailed> => {
        if (sent >= cutAt)
          return Effect.andThen(
            Effect.sync(() => says("cuts the answer of")),
            new BackendFailed({ fault: "cut" })
          )
        if (sent > tokens) return Cause.done()
        sent += 1
        progress()
        if (sent > tokens) {
          says(`ends with ${tokens} tokens`)
          return Effect.succeed(Arr.of(final))
        }
        const frames = Arr.of<Frame>({ createdAt, text: `w${sent} `, done: false })
        // Some frames come together.
        return heldBack || dice.chance(0.3)
          ? Effect.succeed(frames)
          : Effect.as(this.#wait(dice.between(0, 2 * pace()), of), frames)
      })
      return Stream.fromPull(Effect.succeed(next))
    }
  )
}
