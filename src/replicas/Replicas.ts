/** The running processes of the gateway, and the last report of each. For `tollgate status`. */
import { Context, Data, type Effect } from "effect"
import type { Listed } from "../infra/rows.ts"

/** The database failed. `cause` is for the log. */
export class ReplicasDown extends Data.TaggedError("ReplicasDown")<{ readonly cause: unknown }> {}

/** Values of gauges by name. A gauge with labels has one entry for each, as `name{value}`. null: no finite value. */
export type Gauges = Readonly<Record<string, number | null>>

export interface Replica {
  /** random, new at each start */
  readonly id: string
  readonly host: string
  readonly version: string
  readonly started: Date
  /** seconds since then, by the clock of the store */
  readonly upS: number
  /** seconds since its last report */
  readonly silentS: number
  readonly gauges: Gauges
}

/** A process reports this often, in seconds. */
export const reportEveryS = 5
/** After this many seconds without a report a process counts as gone. */
export const goneAfterS = 3 * reportEveryS
/** The row of a process that ended without a word is deleted after this many seconds. */
export const forgetAfterS = 3600

export class Replicas extends Context.Service<
  Replicas,
  {
    /** Writes the row of a process. It also deletes rows of processes that have been silent for `forgetAfterS`. */
    report(replica: Pick<Replica, "id" | "host" | "version" | "gauges">): Effect.Effect<void, ReplicasDown>
    /** Deletes the row of a process that ends. */
    leave(id: string): Effect.Effect<void, ReplicasDown>
    /** All rows, the oldest process first. */
    readonly list: Effect.Effect<Listed<Replica>, ReplicasDown>
  }
>()("tollgate/replicas/Replicas") {}
