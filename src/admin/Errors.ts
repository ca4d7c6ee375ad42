/** The errors of administration. Their messages are for operators: they have no secret, and no text of a cause. */
import { Data, type Duration, Effect } from "effect"
import { redactCutKeys } from "../domain/Key.ts"
import { counted } from "../domain/text.ts"
import { UnreadableRow } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"

export class UnknownTenant extends Data.TaggedError("UnknownTenant")<{ readonly tenant: string }> {
  override readonly message = `unknown tenant ${JSON.stringify(this.tenant)}`
}

export class UnknownKey extends Data.TaggedError("UnknownKey")<{ readonly prefix: string }> {
  override readonly message = `unknown key prefix ${this.prefix}`
}

/** No key, or more than one, has the name, which may be a key that was not copied whole. `candidates`: those that have it, else those whose names contain it. */
export class NoSuchName extends Data.TaggedError("NoSuchName")<{
  readonly name: string
  readonly candidates: ReadonlyArray<{
    readonly name: string
    readonly prefix: string
    readonly tenant: string
  }>
}> {
  readonly #same = this.candidates.some(({ name }) => name === this.name)
  readonly #keys = this.candidates
    .slice(0, 5)
    .map(({ name, prefix, tenant }) => `${prefix} (${name} of ${tenant})`)
    .join(", ")
  override readonly message = this.#same
    ? `${this.candidates.length} keys are named ${JSON.stringify(this.name)}: give the prefix of one: ${this.#keys}`
    : `no key has the prefix or the name ${JSON.stringify(redactCutKeys(this.name))}${this.#keys === "" ? "" : `; did you mean ${this.#keys}?`}`
}

export class DuplicateTenant extends Data.TaggedError("DuplicateTenant")<{ readonly tenant: string }> {
  override readonly message = `tenant ${JSON.stringify(this.tenant)} exists already`
}

/** The tenant has a live key of that name: neither revoked nor expired. */
export class DuplicateKey extends Data.TaggedError("DuplicateKey")<{
  readonly label: string
  readonly prefix: string
}> {
  override readonly message = `the tenant has a live key named ${JSON.stringify(this.label)}: ${this.prefix}. Use another name, revoke that key, or give --allow-duplicate`
}

/** The tenant cannot be deleted. */
export class TenantInUse extends Data.TaggedError("TenantInUse")<{
  readonly tenant: string
  readonly keys: number
}> {
  readonly #has =
    this.keys > 0
      ? `has ${counted(this.keys, "key")}, revoked ones included`
      : "has used tokens, and reports need its name"
  override readonly message = `tenant ${JSON.stringify(this.tenant)} ${this.#has}: it can be disabled, not deleted`
}

/** A revoked key cannot be enabled or disabled. */
export class RevokedKey extends Data.TaggedError("RevokedKey")<{ readonly prefix: string }> {
  override readonly message = `key ${this.prefix} is revoked and cannot be changed`
}

/** `expected` completes the sentence "<field> must be …". The value itself is not repeated. */
export class InvalidValue extends Data.TaggedError("InvalidValue")<{
  readonly field: string
  readonly expected: string
}> {
  override readonly message = `--${this.field} must be ${this.expected}`
}

export const mustBe = (field: string, expected: string) => new InvalidValue({ field, expected })

/** The database failed, or its answer has an unexpected form that is no single row's. `cause` is for a log, not for a terminal. */
export class RegistryDown extends Data.TaggedError("RegistryDown")<{ readonly cause: unknown }> {}

/** The store of the live counters failed. `cause` is for a log, not for a terminal. */
export class CountersDown extends Data.TaggedError("CountersDown")<{ readonly cause: unknown }> {
  override readonly message = "the counters cannot be read: check REDIS_URL, and that Redis runs"
}

const classes = [
  CountersDown,
  DuplicateKey,
  DuplicateTenant,
  InvalidValue,
  NoSuchName,
  RegistryDown,
  RevokedKey,
  TenantInUse,
  UnknownKey,
  UnknownTenant,
  UnreadableRow
]

export type AdminError = InstanceType<(typeof classes)[number]>

export const isAdminError = (error: unknown): error is AdminError =>
  classes.some((one) => error instanceof one)

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
