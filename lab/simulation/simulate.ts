/** Runs one seed, and says what it broke. */
import { newKey } from "../../src/domain/attributes.ts"
import { Broken, type Invariant, Invariants } from "./Invariants.ts"
import type { Told } from "../../test/support/seeded/Simulation.ts"
import { type Ask, World } from "./World.ts"

export interface Options {
  /** events with clients and faults; then everything works again, and the rest is what it takes until all is quiet */
  readonly steps: number
  /** stops after this event */
  readonly until?: number | undefined
  /** faults that do not happen */
  readonly without?: ReadonlySet<string> | undefined
  readonly tell?: ((told: Told) => void) | undefined
  /** what a test does to the world before it begins */
  readonly prepare?: ((world: World) => void) | undefined
}

export interface Result {
  readonly seed: number
  readonly steps: number
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
const activeMs = 120_000
const quietMs = 90_000
const checkedEvery = 100
/** Ten times the events that any seed took after its faults. A gateway that hangs would otherwise only make time go by. */
const mostRest = 120_000

export const simulate = (
  seed: number,
  { prepare, steps, tell, until = Number.POSITIVE_INFINITY, without }: Options
): Result => {
  const world = new World(seed, without, tell)
  prepare?.(world)
  const { simulation } = world
  const invariants = new Invariants(world)
  const run = (goesOn: () => boolean): void => {
    while (simulation.step < until && goesOn() && simulation.advance()) {
      if (simulation.step % checkedEvery === 0) invariants.check()
      if (invariants.broken !== undefined) throw invariants.broken
      if (simulation.step > steps + mostRest) throw new Error(`seed ${seed} does not end`)
    }
  }
  const rest = (wasAskedAgain: boolean): void => {
    const end = simulation.now + quietMs
    const unrest = () => invariants.unrest(wasAskedAgain)
    run(() => simulation.now < end && (simulation.step % checkedEvery !== 0 || unrest() !== undefined))
    const left = simulation.step < until ? unrest() : undefined
    if (left !== undefined) throw new Broken(...left)
  }
  const play = (): void => {
    run(() => simulation.step < steps && simulation.now < activeMs)
    world.heal()
    rest(false)
    invariants.checkBudgets()
    // A gateway that could not list the models asks again after 5 seconds, and a circuit that is open tries again before that.
    // What a slow store was asked before is answered within a second, or fails.
    const healed = Math.max(world.stores.model.troubledAt + 5500, world.lastTrouble + 1500)
    run(() => simulation.now < healed)
    // Each account asks once more, and each gateway is asked, with keys that have room.
    const { postgres } = world.stores
    const [accounts, { alive }] = [invariants.accounts(), world]
    const room = { budgetDaily: null, budgetWeekly: null, modelRules: [], tpm: 1_000_000, rpm: 1000 }
    for (const tenant of postgres.tenants.values())
      postgres.changeTenant({ ...tenant, settings: { ...tenant.settings, ...room } })
    const asked: Array<Ask> = []
    const isWaiting = () => asked.some(({ ended }) => !ended)
    for (let i = 0; i < Math.max(accounts.length, alive.length); i += 1) {
      const { group = "", key: account, model, user } = accounts[i] ?? accounts[0] ?? {}
      const [tenant, gateway] = [postgres.tenants.get(group), alive[i % alive.length]]
      if (tenant === undefined || gateway === undefined) continue
      // A circuit that was open lets one request pass until it has its answer.
      const patience = simulation.now + 20_000
      if (i >= alive.length || (user ?? model) !== undefined)
        run(() => isWaiting() && simulation.now < patience)
      const name = world.users.get(user ?? "")?.name
      const settings = {
        ...newKey,
        ...(name === undefined ? {} : { endUserHeader: "x-user", eachUserRpm: 1000 }),
        // Of an account with limits for a model, each request counts there.
        modelRules: accounts.flatMap((one) =>
          one.key === account && one.model !== undefined ? [{ name: one.model, rpm: 1000 }] : []
        )
      }
      const key = world.addKey(tenant, settings, i < accounts.length ? account : undefined)
      const ask = world.ask({ settled: gateway, key, user: name, model })
      if (ask !== undefined) asked.push(ask)
    }
    const asking = simulation.now + quietMs
    run(() => simulation.now < asking && asked.some(({ id }) => id === ""))
    rest(true)
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

/** Fewer kinds of faults, then fewer events, as long as the same invariant breaks. */
export const shrink = ({ failure, faults, seed }: Result, given: Options): Options => {
  const breaks = (options: Options) => simulate(seed, options).failure?.invariant === failure?.invariant
  let best = given
  for (const fault of faults) {
    const fewer = { ...best, without: new Set([...(best.without ?? []), fault]) }
    if (breaks(fewer)) best = fewer
  }
  for (let cut = best.steps / 2; cut >= 10; cut /= 2) {
    const shorter = { ...best, steps: Math.round(best.steps - cut) }
    if (shorter.steps > 0 && breaks(shorter)) best = shorter
  }
  return best
}
