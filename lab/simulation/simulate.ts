/** Runs one seed, and says what it broke. */
import { Broken, type Invariant, Invariants } from "./Invariants.ts"
import type { Told } from "./Simulation.ts"
import { World } from "./World.ts"

export interface Options {
  /** events with clients and faults; then everything works again, and the rest is what it takes until all is quiet */
  readonly steps: number
  /** stops after this event */
  readonly until?: number | undefined
  /** faults that do not happen */
  readonly without?: ReadonlySet<string> | undefined
  readonly tell?: ((told: Told) => void) | undefined
}

export interface Result {
  readonly seed: number
  readonly steps: number
  readonly ms: number
  readonly requests: number
  /** the faults that were possible */
  readonly faults: ReadonlyArray<string>
  readonly failure:
    | {
        readonly step: number
        readonly invariant: Invariant
        readonly why: string
        readonly told: ReadonlyArray<Told>
      }
    | undefined
}

/** How long clients and faults come, and how long it may take until all is quiet, in the time of the world. */
const activeMs = 40_000
const quietMs = 90_000
const checkedEvery = 100

export const simulate = (
  seed: number,
  { steps, tell, until = Number.POSITIVE_INFINITY, without }: Options
): Result => {
  const world = new World(seed, without, tell)
  const { simulation } = world
  const invariants = new Invariants(world)
  const run = (goesOn: () => boolean): void => {
    while (simulation.step < until && goesOn() && simulation.advance()) {
      if (simulation.step % checkedEvery === 0) invariants.check()
      if (invariants.broken !== undefined) throw invariants.broken
    }
  }
  const rest = (): void => {
    const end = simulation.now + quietMs
    run(
      () =>
        simulation.now < end && (simulation.step % checkedEvery !== 0 || invariants.unrest() !== undefined)
    )
    const unrest = simulation.step < until ? invariants.unrest() : undefined
    if (unrest !== undefined) throw new Broken(...unrest)
  }
  const play = (): void => {
    run(() => simulation.step < steps && simulation.now < activeMs)
    world.heal()
    rest()
    invariants.checkBudgets()
    // A circuit that is open tries again, and the queue knows of all.
    const healed = simulation.now + 4000
    run(() => simulation.now < healed)
    const [tenant] = world.stores.postgres.tenants.values()
    if (tenant === undefined) return
    world.stores.postgres.tenants.set(tenant.id, {
      ...tenant,
      settings: { ...tenant.settings, budgetDaily: null, tpm: 1_000_000, rpm: 1000 }
    })
    const asked = world.alive.flatMap((gateway) => {
      const key = world.addKey(tenant)
      world.stores.postgres.keys.set(key.prefix, {
        ...key,
        settings: { ...key.settings, budgetDaily: null, budgetTotal: null }
      })
      return world.ask({ gateway, key }) ?? []
    })
    run(() => asked.some(({ id }) => id === ""))
    rest()
    const refused = asked.find(({ status }) => status !== 200)
    if (refused !== undefined && simulation.step < until)
      throw new Broken(
        "works again",
        `${refused.gateway.process.name} answers ${refused.status} ${refused.text}`
      )
    invariants.checkBooks()
  }
  const result = (failure: Result["failure"]): Result => ({
    seed,
    steps: simulation.step,
    ms: simulation.now,
    requests: world.asks.length,
    faults: [...world.possible],
    failure
  })
  try {
    play()
    return result(undefined)
  } catch (error) {
    if (!(error instanceof Broken)) throw error
    return result({
      step: simulation.step,
      invariant: error.invariant,
      why: error.message,
      told: simulation.told
    })
  }
}
