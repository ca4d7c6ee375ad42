/** The secret that seals contexts. All replicas share it, and it survives a restart. */
import { Context, type Effect } from "effect"
import type { Unavailable } from "../domain/Errors.ts"

export class ContextSecret extends Context.Service<
  ContextSecret,
  {
    /** 32 bytes. Read once, then remembered. Fails with `Unavailable` when the first read gets no answer. */
    readonly read: Effect.Effect<Buffer, Unavailable>
  }
>()("tollgate/secrets/ContextSecret") {}
