/** Compares a declaration with what is in force, and makes the changes that `apply` prints and runs. */
import { Effect, Predicate } from "effect"
import type { Registry } from "../src/admin/Registry.ts"
import { type AdminError, type InvalidValue, UnknownKey } from "../src/admin/Errors.ts"
import { withoutDefaultTag } from "../src/gates/models/Catalog.ts"
import { FileInvalid } from "./errorMessages.ts"
import {
  type Declaration,
  declarationOf,
  type DeclaredTenant,
  keyChangeOf,
  tenantChangeOf,
  type State
} from "./declaration.ts"

/** One changed field. `null`: none. */
export interface Change {
  /** `tenant acme` or `key tg_4fJ2kQ9sX` */
  readonly subject: string
  readonly field: string
  readonly before: unknown
  readonly after: unknown
}

type Fields = Readonly<Record<string, unknown>>

const same = (one: unknown, other: unknown): boolean =>
  one === other || JSON.stringify(one) === JSON.stringify(other)

/** As the database stores it: each model once, aliases without `:latest`. The order of both means nothing. */
const normal = (tenant: DeclaredTenant): DeclaredTenant => ({
  ...tenant,
  ...(tenant.models === undefined || tenant.models === "all"
    ? {}
    : { models: [...new Set(tenant.models)].toSorted() }),
  ...(tenant.aliases === undefined
    ? {}
    : {
        aliases: Object.fromEntries(
          Object.entries(tenant.aliases)
            .map(([alias, model]) => [withoutDefaultTag(alias), model] as const)
            .toSorted(([one], [other]) => (one < other ? -1 : 1))
        )
      })
})

/** The fields of `wanted` that differ; a nested object counts by its own fields. */
const differences = (subject: string, now: Fields, wanted: Fields, under = ""): ReadonlyArray<Change> =>
  Object.entries(wanted).flatMap(([field, after]): ReadonlyArray<Change> => {
    const before = now[field] ?? (field === "budgets" ? {} : null)
    if (after === undefined || same(before, after)) return []
    return field === "budgets" && Predicate.isObject(after) && Predicate.isObject(before)
      ? differences(subject, { ...before }, { ...after }, "budgets.")
      : [{ subject, field: `${under}${field}`, before, after }]
  })

/** Tenants and keys that the file does not name stay as they are. */
export const planOf = Effect.fnUntraced(function* (
  registry: Registry["Service"],
  file: string,
  wanted: Declaration,
  state: State
) {
  const now = declarationOf(state)
  const changes: Array<Change> = []
  const steps: Array<Effect.Effect<unknown, AdminError | FileInvalid>> = []
  const invalid = (problem: string) => new FileInvalid({ file, problem })
  const checked = <A, E extends AdminError>(subject: string, effect: Effect.Effect<A, E | InvalidValue>) =>
    Effect.catchTag(effect, "InvalidValue", ({ expected, field }) =>
      invalid(`${subject}: ${field} must be ${expected}`)
    )
  const named = new Set<string>()
  const once = (subject: string) => {
    const unreadable = state.unreadable.find(({ row }) => row === subject)
    if (unreadable !== undefined) return Effect.fail(unreadable)
    return named.has(subject)
      ? invalid(`${subject} is there twice`)
      : Effect.sync(() => void named.add(subject))
  }
  const plan = (subject: string, before: Fields, after: Fields, run: Effect.Effect<unknown, AdminError>) => {
    const differing = differences(subject, before, after)
    if (differing.length === 0) return
    changes.push(...differing)
    steps.push(checked(subject, run))
  }

  for (const tenant of wanted.tenants) {
    const { enabled, name } = tenant
    const subject = `tenant ${name}`
    yield* once(subject)
    const present = now.tenants.find((one) => one.name === name)
    const { keys: _, ...before } = present === undefined ? { name: null } : normal(present)
    const { keys: declaredKeys = [], ...after } = normal(tenant)
    const settings = yield* checked(subject, tenantChangeOf(tenant))
    const write: Effect.Effect<unknown, AdminError> =
      present === undefined
        ? registry.createTenant({ name, ...settings })
        : registry.changeTenant(name, settings)
    const toggle: Effect.Effect<unknown, AdminError> =
      enabled === undefined ? Effect.void : registry.setTenantEnabled(name, enabled)
    plan(subject, before, after, Effect.andThen(write, toggle))
    for (const key of declaredKeys) {
      const { enabled, name, prefix, prompt_log, ...rest } = key
      const subject = `key ${prefix}`
      yield* once(subject)
      const found = state.keys.find((one) => one.prefix === prefix)
      if (found === undefined) return yield* new UnknownKey({ prefix })
      if (found.tenant !== tenant.name) return yield* invalid(`${subject} belongs to another tenant`)
      const current = present?.keys?.find((one) => one.prefix === prefix)
      if (current === undefined) return yield* invalid(`${subject} is revoked`)
      if (name !== undefined && name !== found.name)
        return yield* invalid(`${subject} is named ${JSON.stringify(found.name)}, and a name cannot change`)
      // `true` turns the log on and does not change the days.
      const logsAlready = prompt_log === true && typeof current.prompt_log === "number"
      const write = registry.changeKey(prefix, yield* checked(subject, keyChangeOf(key)))
      const toggle: Effect.Effect<unknown, AdminError> =
        enabled === undefined ? Effect.void : registry.setKeyEnabled(prefix, enabled)
      plan(
        subject,
        current,
        { ...rest, enabled, prompt_log: logsAlready ? undefined : prompt_log },
        Effect.andThen(write, toggle)
      )
    }
  }
  return { changes, run: registry.atomically(Effect.all(steps, { discard: true })) }
})
