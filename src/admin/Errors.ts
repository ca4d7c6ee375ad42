/** The errors of administration. None of them contains a secret. */
import { Data, type Duration, Effect } from "effect"
import { UnreadableRow } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"

export class UnknownTenant extends Data.TaggedError("UnknownTenant")<{ readonly tenant: string }> {}

export class UnknownKey extends Data.TaggedError("UnknownKey")<{ readonly prefix: string }> {}

export class DuplicateTenant extends Data.TaggedError("DuplicateTenant")<{ readonly tenant: string }> {}

/** The tenant has a live key of that name: neither revoked nor expired. */
export class DuplicateKey extends Data.TaggedError("DuplicateKey")<{
  readonly label: string
  readonly prefix: string
}> {}

/** The tenant cannot be deleted. */
export class TenantInUse extends Data.TaggedError("TenantInUse")<{
  readonly tenant: string
  readonly keys: number
}> {}

/** A revoked key cannot be enabled or disabled. */
export class RevokedKey extends Data.TaggedError("RevokedKey")<{ readonly prefix: string }> {}

/** `expected` completes the sentence "<field> must be …". The value itself is not repeated. */
export class InvalidValue extends Data.TaggedError("InvalidValue")<{
  readonly field: string
  readonly expected: string
}> {}

export const mustBe = (field: string, expected: string) => new InvalidValue({ field, expected })

/** The database failed, or its answer has an unexpected form that is no single row's. `cause` is for a log, not for a terminal. */
export class RegistryDown extends Data.TaggedError("RegistryDown")<{ readonly cause: unknown }> {}

/** The store of the live counters failed. `cause` is for a log, not for a terminal. */
export class CountersDown extends Data.TaggedError("CountersDown")<{ readonly cause: unknown }> {}

const classes = [
  CountersDown,
  DuplicateKey,
  DuplicateTenant,
  InvalidValue,
  RegistryDown,
  RevokedKey,
  TenantInUse,
  UnknownKey,
  UnknownTenant,
  UnreadableRow
]

export type AdminError = InstanceType<(typeof classes)[number]>

const isAdminError = (error: unknown): error is AdminError => classes.some((one) => error instanceof one)

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
