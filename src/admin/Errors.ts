/** What can go wrong with an operator's request. None of them ever carries a secret. */
import { Data } from "effect"

export class UnknownTenant extends Data.TaggedError("UnknownTenant")<{ readonly tenant: string }> {}

export class UnknownKey extends Data.TaggedError("UnknownKey")<{ readonly prefix: string }> {}

export class DuplicateTenant extends Data.TaggedError("DuplicateTenant")<{ readonly tenant: string }> {}

/** A revoked key stays revoked: it can be neither disabled nor enabled. */
export class RevokedKey extends Data.TaggedError("RevokedKey")<{ readonly prefix: string }> {}

/** `expected` completes the sentence "<field> must be …"; the value itself is not repeated. */
export class InvalidValue extends Data.TaggedError("InvalidValue")<{
  readonly field: string
  readonly expected: string
}> {}

/** The database did not do it, or its answer was not understood. `cause` is for a log, not for a terminal. */
export class RegistryDown extends Data.TaggedError("RegistryDown")<{ readonly cause: unknown }> {}
