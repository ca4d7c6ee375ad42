/** What goes wrong in a soak, one thing at a time. */
import { Effect } from "effect"
import type { Random } from "../fuzz/Random.ts"
import type { FaultProxy } from "../support/FaultProxy.ts"
import type { Ground } from "./Ground.ts"

export type Part = "postgres" | "redis" | "backend" | "replica 1" | "replica 2"

export interface Fault {
  readonly part: Part
  readonly name: string
  readonly begin: Effect.Effect<void, unknown>
  readonly end: Effect.Effect<void, unknown>
}

/** What a wire can do to any of the three. */
const ofWire = (part: Part, wire: FaultProxy, random: Random): ReadonlyArray<Fault> => {
  const fault = (name: string, begin: Effect.Effect<void>): Fault => ({ part, name, begin, end: wire.heal })
  const slow = 100 + random.int(2000)
  return [
    fault("refuses", Effect.andThen(wire.refuse, wire.reset)),
    fault("connections reset", wire.reset),
    fault("black hole", wire.blackHole()),
    fault("says nothing back", wire.blackHole("toClient")),
    fault("late, all of it", wire.stall()),
    fault("slow", wire.latency(slow)),
    fault("in small pieces", wire.slice(40, 2))
  ]
}

export const faultsOf = (ground: Ground["Service"], random: Random): ReadonlyArray<Fault> => {
  const { backend, postgres, redis, replicas, wires } = ground
  /** Who was there when the fault began may still seem to be after its client has gone: not counted. */
  const forgetting = (fault: Fault): Fault => ({
    ...fault,
    begin: Effect.andThen(Effect.sync(backend.forget), fault.begin),
    end: Effect.andThen(fault.end, Effect.sync(backend.forget))
  })
  const servers = (
    [
      ["postgres", postgres],
      ["redis", redis]
    ] as const
  ).flatMap(([part, server]): ReadonlyArray<Fault> => [
    { part, name: "killed", begin: server.kill, end: server.start },
    { part, name: "stopped", begin: server.stop, end: server.start },
    { part, name: "frozen", begin: server.pause, end: server.resume }
  ])
  const processes = replicas.flatMap((replica, i): ReadonlyArray<Fault> => {
    const part: Part = i === 0 ? "replica 1" : "replica 2"
    return [
      { part, name: "killed", begin: replica.kill, end: replica.start },
      forgetting({ part, name: "frozen", begin: replica.freeze, end: replica.thaw })
    ]
  })
  return [
    ...servers,
    // Twice, so that each part has its share.
    ...processes,
    ...processes,
    ...ofWire("postgres", wires.postgres, random),
    ...ofWire("redis", wires.redis, random),
    ...ofWire("backend", wires.backend, random).map(forgetting)
  ]
}
