/** What can go wrong in a world, and how. Each fault mends itself after a while. */
import { Struct } from "effect"
import type { Gateway, World } from "./World.ts"

/** Now, or when a store has done what the gateway asked for, before the gateway knows. */
const strike = (world: World, what: (gateway: Gateway) => void): void => {
  const { dice } = world.simulation
  const gateway = dice.pick(world.alive)
  if (gateway === undefined) return
  if (dice.chance(0.3)) return what(gateway)
  gateway.process.struck = { in: dice.between(1, 4), what: () => what(gateway) }
}

const storeOf = ({ simulation, stores }: World) =>
  simulation.dice.chance(0.5) ? stores.postgres : stores.redis

const put = (world: World, state: "slow" | "cut" | "frozen", least: number, most: number): void => {
  const { simulation } = world
  const store = storeOf(world)
  store.set(state)
  simulation.after(simulation.dice.between(least, most), undefined, () => store.set("well"))
}

/** How long a store is away. */
const awayMs = ({ simulation: { dice } }: World): number => (dice.chance(0.2) ? 12_000 : 3000)

export const faults = {
  kill: (world: World) => {
    if (world.simulation.dice.chance(0.5)) return
    strike(world, (gateway) => {
      if (world.alive.length > 1 && !gateway.process.isDead) world.kill(gateway)
    })
  },
  pause: (world: World) => {
    const { dice } = world.simulation
    // Sometimes longer than its leases live.
    const ms = dice.between(50, dice.chance(0.4) ? 2000 * world.stores.leaseS : 1500)
    strike(world, (gateway) => world.pause(gateway, ms))
  },
  slow: (world: World) => put(world, "slow", 500, 5000),
  cut: (world: World) => put(world, "cut", 100, awayMs(world)),
  freeze: (world: World) => put(world, "frozen", 100, awayMs(world)),
  "lose redis": ({ simulation, stores }: World) => {
    if (simulation.dice.chance(0.3)) stores.redis.lose()
  },
  "crash postgres": (world: World) => {
    const { simulation, stores } = world
    if (!simulation.dice.chance(0.3)) return
    world.crashedAt = simulation.now
    stores.postgres.crash()
  },
  "lose replies": (world: World) => {
    const { simulation } = world
    const store = storeOf(world)
    store.losesReplies = 0.2
    simulation.after(simulation.dice.between(100, 2000), undefined, () => {
      store.losesReplies = 0
      store.troubledAt = simulation.now
    })
  },
  "model down": ({ simulation, stores: { model } }: World) => {
    model.setUp(false)
    simulation.after(simulation.dice.between(500, 6000), undefined, () => model.setUp(true))
  },
  "model errs": ({ simulation, stores: { model } }: World) => {
    model.errs = 0.5
    simulation.after(simulation.dice.between(1000, 9000), undefined, () => void (model.errs = 0))
  },
  // They leave by themselves (`World.ask`).
  "clients leave": () => undefined
} satisfies Readonly<Record<string, (world: World) => void>>

export type Fault = keyof typeof faults
export const faultNames = Struct.keys(faults)
/** Faults after which the stores still have what they were told, and are told it in time. */
const harmless: ReadonlySet<Fault> = new Set(["model down", "model errs", "clients leave"])
export const isHarmless = (fault: Fault): boolean => harmless.has(fault)
