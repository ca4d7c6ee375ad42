/** What the drill takes away, and how. */
import { Effect } from "effect"
import type { Ground } from "./Ground.ts"

export interface Outage {
  readonly name: string
  readonly begin: Effect.Effect<void, unknown>
  readonly end: Effect.Effect<void, unknown>
}

/** Slower than any bound of the gateway allows: statements have 2 s, Redis commands 0.4 s, a first byte 1 s here. */
const slowMs = { postgres: 2500, redis: 600, backend: 1500 }

export const outagesOf = ({ postgres, redis, replicas, wires }: Ground["Service"]): ReadonlyArray<Outage> => [
  { name: "Postgres killed", begin: postgres.kill, end: postgres.start },
  { name: "Postgres frozen", begin: postgres.pause, end: postgres.resume },
  { name: "Postgres slow", begin: wires.postgres.latency(slowMs.postgres), end: wires.postgres.heal },
  { name: "Redis killed", begin: redis.kill, end: redis.start },
  { name: "Redis frozen", begin: redis.pause, end: redis.resume },
  { name: "Redis slow", begin: wires.redis.latency(slowMs.redis), end: wires.redis.heal },
  {
    name: "Model server killed",
    begin: Effect.andThen(wires.backend.refuse, wires.backend.reset),
    end: wires.backend.heal
  },
  { name: "Model server frozen", begin: wires.backend.stall(), end: wires.backend.heal },
  { name: "Model server slow", begin: wires.backend.latency(slowMs.backend), end: wires.backend.heal },
  { name: "One replica killed", begin: replicas[0].kill, end: replicas[0].start },
  { name: "One replica frozen", begin: replicas[0].freeze, end: replicas[0].thaw }
]
