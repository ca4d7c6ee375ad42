/**
 * The gate for models. It decides which of the backend's models a caller may use, from the last poll. When the poll found
 * no models or has expired, every model is denied.
 */
import { Context, type Effect, type Exit } from "effect"
import type { BadRequest, Forbidden, Unavailable } from "../../domain/Errors.ts"
import type { Asked, Evidence } from "../../domain/Evidence.ts"
import type { OfferedModel } from "../../domain/Model.ts"

export class Discovery extends Context.Service<
  Discovery,
  {
    /**
     * Checks the scope of the key, then finds the model: an exact match with a discovered name, or with `name:latest` when
     * the name has no tag, or an alias of the tenant. Not installed, not permitted, unknown: the same error, and no backend
     * call. Fails with `BadRequest` when the model is known to be unable to do what is asked.
     */
    resolve(
      key: Evidence<"KeyStore">,
      asked: Asked
    ): Exit.Exit<Evidence<"Discovery">, BadRequest | Forbidden | Unavailable>
    /**
     * The models that the caller may use, in the backend's order, then the aliases that lead to one of them; empty when the
     * list is empty or expired.
     */
    effective(key: Evidence<"KeyStore">): Exit.Exit<ReadonlyArray<OfferedModel>, Unavailable>
    /** Whether the list is older than it may be, or there never was one: every model is denied for that reason. */
    readonly isExpired: () => boolean
    /** Requests a new poll soon, without waiting for it, after a model was not found. */
    readonly refresh: Effect.Effect<void>
  }
>()("tollgate/gates/models/Discovery") {}
