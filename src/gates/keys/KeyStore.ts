/**
 * Authenticates a secret and returns its `Caller` with resolved limits.
 *
 * Every decision uses a database read that started at most `KEY_FRESHNESS_MS` ago. The process may remember that a secret
 * matches its hash. It may not remember status, limits or grants.
 */
import { Context, type Effect } from "effect"
import type { Unauthorized, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"

export class KeyStore extends Context.Service<
  KeyStore,
  {
    /**
     * `secret` is what followed `Bearer `, or undefined when there was no such single header. Anything that does
     * not have the shape of a key is refused before any I/O. `from` is the address that asks (of IPv6 the /64): when more
     * secrets are to be verified than there is time for, addresses take turns. It begins when it is called. A key in use is decided
     * at once: then it is an `Exit`.
     */
    verify(
      secret: string | undefined,
      from?: string
    ): Effect.Effect<Evidence<"KeyStore">, Unauthorized | Unavailable>
    /** What is known of the key with this prefix is read again; null: of all keys. */
    readonly forget: (prefix: string | null) => Effect.Effect<void>
    /** Succeeds when the database can be written: for readiness. */
    readonly ping: Effect.Effect<void, Unavailable>
  }
>()("tollgate/gates/keys/KeyStore") {}
