/**
 * The gate for models. It decides which of the backend's models a caller may use, from the last poll. When the poll found
 * no models or has expired, every model is denied.
 */
import { Context, type Effect } from "effect"
import type { Caller } from "../../domain/Caller.ts"
import type { Forbidden, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"
import type { Model } from "../../domain/Model.ts"

export class Discovery extends Context.Service<
  Discovery,
  {
    /**
     * Matches a discovered name exactly, or `name:latest` when the name has no tag. A model that is not installed, not
     * permitted or unknown is the same error, without a backend call.
     */
    resolve(
      caller: Caller,
      model: string
    ): Effect.Effect<Evidence<"Discovery", Model>, Forbidden | Unavailable>
    /** The models that the caller may use, in the backend's order; empty when the list is empty or expired. */
    effective(caller: Caller): Effect.Effect<ReadonlyArray<Model>, Unavailable>
    /** Requests a new poll soon, without waiting for it, after a model was not found. */
    readonly refresh: Effect.Effect<void>
  }
>()("tollgate/gates/models/Discovery") {}
