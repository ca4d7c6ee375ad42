/** Counts the operations of Effect's run loop, in all fibers that have this scheduler. */
import { type Fiber, Layer, Scheduler } from "effect"

export class CountingScheduler extends Scheduler.MixedScheduler {
  #count = 0
  readonly #last = new WeakMap<Fiber.Fiber<unknown, unknown>, number>()

  /** The operations so far. Those after the last turn of a fiber's loop are counted with its next turn, or never. */
  get count(): number {
    return this.#count
  }

  // Effect calls it in each turn of the loop. A loop that begins again counts from 1.
  override shouldYield(fiber: Fiber.Fiber<unknown, unknown>): boolean {
    const [before, now] = [this.#last.get(fiber) ?? 0, fiber.currentOpCount]
    this.#count += now > before ? now - before : now
    this.#last.set(fiber, now)
    return super.shouldYield(fiber)
  }

  readonly layer = Layer.succeed(Scheduler.Scheduler, this)
}
