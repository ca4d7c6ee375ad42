/** What goes wrong in a soak, one thing at a time. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect } from "effect"
import { Redis } from "ioredis"
import type { Random } from "../../test/fuzz/Random.ts"
import type { FaultProxy } from "../../test/support/FaultProxy.ts"
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

/** One command on a connection of its own. */
const command = (url: string, name: string, ...args: ReadonlyArray<string>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => new Redis(url)),
    (client) => Effect.tryPromise(() => client.call(name, ...args)),
    (client) => Effect.sync(() => client.disconnect())
  ).pipe(Effect.asVoid)

/** What the stores can do to those they serve while they run on. */
const ofStores = (redis: string, pg: PgClient.PgClient): ReadonlyArray<Fault> => [
  {
    part: "redis",
    name: "full",
    begin: command(redis, "CONFIG", "SET", "maxmemory", "100kb"),
    end: command(redis, "CONFIG", "SET", "maxmemory", "0")
  },
  {
    part: "redis",
    name: "forgets its scripts",
    begin: command(redis, "SCRIPT", "FLUSH"),
    end: command(redis, "SCRIPT", "FLUSH")
  },
  {
    part: "postgres",
    name: "ends sessions",
    begin: Effect.asVoid(pg`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE application_name = 'tollgate' AND client_addr IS NOT NULL AND pid <> pg_backend_pid()`),
    end: Effect.void
  },
  {
    part: "postgres",
    name: "read-only",
    begin: Effect.asVoid(pg`ALTER DATABASE postgres SET default_transaction_read_only = on`).pipe(
      Effect.andThen(
        pg`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_addr IS NOT NULL`
      ),
      Effect.asVoid
    ),
    end: Effect.asVoid(
      pg.withTransaction(
        Effect.andThen(
          pg`SET TRANSACTION READ WRITE`,
          pg`ALTER DATABASE postgres SET default_transaction_read_only = off`
        )
      )
    ).pipe(
      Effect.andThen(
        pg`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_addr IS NOT NULL`
      ),
      Effect.asVoid
    )
  }
]

export const faultsOf = (
  ground: Ground["Service"],
  pg: PgClient.PgClient,
  random: Random
): ReadonlyArray<Fault> => {
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
    ...ofStores(redis.url, pg),
    // Twice, so that each part has its share.
    ...processes,
    ...processes,
    ...ofWire("postgres", wires.postgres, random),
    ...ofWire("redis", wires.redis, random),
    ...ofWire("backend", wires.backend, random).map(forgetting)
  ]
}
