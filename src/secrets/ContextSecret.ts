/** The secret that contexts are sealed with: the same for all replicas, and after a restart. */
import { Context, type Effect } from "effect"
import type { Unavailable } from "../domain/Errors.ts"

export class ContextSecret extends Context.Service<
  ContextSecret,
  {
    /** 32 bytes. Read once and remembered; until then a database that does not answer is `Unavailable`. */
    readonly read: Effect.Effect<Buffer, Unavailable>
  }
>()("tollgate/secrets/ContextSecret") {}
