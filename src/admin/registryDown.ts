/** What an operation of an operator may fail with: our own errors, or `RegistryDown` for everything else. */
import { type Duration, Effect } from "effect"
import { timeoutDetached } from "../infra/time.ts"
import { type AdminError, isAdminError, RegistryDown } from "./Errors.ts"

/** Passes our own errors. Every other error, and a wait of more than `limit`, becomes `RegistryDown`. */
export const withRegistryDownAfter =
  (limit: Duration.Input) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    effect.pipe(
      timeoutDetached(limit),
      Effect.mapError((cause): Extract<E, AdminError> | RegistryDown => {
        const isOurs = (error: typeof cause): error is Extract<typeof cause, Extract<E, AdminError>> =>
          isAdminError(error)
        return isOurs(cause) ? cause : new RegistryDown({ cause })
      })
    )

export const withRegistryDown = withRegistryDownAfter("8 seconds")
