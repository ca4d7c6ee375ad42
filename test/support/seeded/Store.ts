/** A store behind a network: what is sent arrives later, and so do the replies. It can be slow, cut, frozen, or lose replies. */
import { Effect } from "effect"
import type { Process, Simulation } from "./Simulation.ts"

/** `00000000-0000-7000-8000-00000000000c` is `r12`. */
export const short = (id: string): string => `r${Number.parseInt(id.slice(-12), 16)}`

export class Store {
  readonly name: string
  readonly simulation: Simulation
  state: "well" | "slow" | "cut" | "frozen" = "well"
  /** how likely it is that a reply is lost */
  losesReplies = 0
  /** when it last did not work as it should */
  troubledAt = Number.NEGATIVE_INFINITY
  #cuts = 0
  #held: Array<() => void> = []

  constructor(simulation: Simulation, name: string) {
    this.simulation = simulation
    this.name = name
  }

  /** Cuts every connection, once. */
  drop(): void {
    this.#cuts += 1
    this.troubledAt = this.simulation.now
  }

  set(state: Store["state"]): void {
    if (state === this.state) return
    this.simulation.say(this.name, `is ${state}`)
    this.state = state
    this.troubledAt = this.simulation.now
    if (state === "cut") this.drop()
    if (state === "frozen") return
    // What arrived meanwhile is done now, also when nobody waits for it any more.
    for (const arrive of this.#held.splice(0)) this.simulation.after(0, undefined, arrive)
  }

  get latencyMs(): number {
    const { dice } = this.simulation
    return this.state === "slow"
      ? dice.between(50, 900)
      : dice.chance(0.1)
        ? dice.between(2, 30)
        : dice.between(0, 2)
  }

  /** Does `work` at the store, all at once. `lost` makes the error of a connection that broke. */
  ask<A, E>(of: Process, what: () => string, work: () => A, lost: (why: string) => E): Effect.Effect<A, E> {
    return Effect.callback<A, E>((resume) => {
      const { simulation } = this
      const { dice } = simulation
      const cuts = this.#cuts
      let isWanted = true
      const fail = (why: string) =>
        simulation.after(dice.between(0, 2), of, () => resume(Effect.fail(lost(`${this.name}: ${why}`))))
      const arrive = (): void => {
        if (this.state === "frozen") return void this.#held.push(arrive)
        if (this.state === "cut" || this.#cuts !== cuts) return void fail("no connection")
        // The cancellation may come first.
        if (!isWanted && dice.chance(0.5)) return
        const answer = work()
        simulation.say(this.name, () => `${what()} for ${of.name}`)
        of.onEffect()
        if (dice.chance(this.losesReplies)) {
          simulation.say(this.name, `loses the reply to ${of.name}`)
          this.troubledAt = simulation.now
          return void fail("the reply was lost")
        }
        simulation.after(this.latencyMs, of, () =>
          this.#cuts === cuts ? resume(Effect.succeed(answer)) : fail("the connection broke")
        )
      }
      if (this.state === "cut") fail("no connection")
      else simulation.after(this.latencyMs, undefined, arrive)
      return Effect.sync(() => {
        isWanted = false
      })
    })
  }
}
