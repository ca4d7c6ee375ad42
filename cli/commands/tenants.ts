/** The commands that create, list and disable tenants, and show what they used. */
import { Clock, Effect } from "effect"
import { Command, Flag } from "effect/cli"
import { mustBe } from "../../src/admin/Errors.ts"
import { Needs } from "../Needs.ts"
import type { TenantInfo } from "../../src/admin/rows.ts"
import * as Values from "../../src/admin/Values.ts"
import { periods } from "../../src/domain/Limits.ts"
import { described } from "../help.ts"
import * as flags from "../flags.ts"
import { inForce } from "../gateways.ts"
import { tenantHints } from "../modelHints.ts"
import { tenantTable } from "../tables.ts"
import { amount, counted, escapeText, noteAsText, notesAsText, show, showList, tableOf } from "../terminal.ts"
import { times } from "../zone.ts"

const showTenant = (tenant: TenantInfo) =>
  Effect.andThen(show(tenant, tenantTable([tenant])), notesAsText(tenantHints(tenant)))

export const createTenant = Command.make(
  "create-tenant",
  {
    name: Flag.String("name").pipe(Flag.withDescription("Name of the new tenant")),
    attributes: flags.creationFlags("tenant"),
    allowAllModels: flags.toggle("allow-all-models", "Allow every installed model instead of an allowlist")
  },
  Effect.fnUntraced(function* ({ allowAllModels, name, attributes }) {
    const registry = yield* Needs.registry
    const given = yield* Values.tenantChange({ allowAllModels, ...attributes })
    yield* showTenant(yield* registry.createTenant({ name, ...given }))
  })
).pipe(
  described(
    "Create a tenant: the owner of keys, limits and a model allowlist",
    ["tollgate create-tenant --name acme", "Default limits, no models yet"],
    "tollgate create-tenant --name acme --rpm 120 --allow-all-models"
  )
)

export const listTenants = Command.make(
  "list-tenants",
  {},
  Effect.fnUntraced(function* () {
    const registry = yield* Needs.registry
    yield* showList(yield* registry.listTenants, "no tenants", tenantTable)
  })
).pipe(described("List the tenants with their limits and models", "tollgate list-tenants --json"))

export const disableTenant = Command.make(
  "disable-tenant",
  { tenant: flags.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Needs.registry
    const before = yield* registry.showTenant(tenant)
    const changed = yield* registry.setTenantEnabled(tenant, false)
    yield* show(changed, tenantTable([changed]))
    // Afterwards: a key that cannot be read must not keep the tenant enabled.
    const rows = yield* registry.listKeys(tenant)
    const active = rows.filter(({ status }) => status === "active").length
    yield* noteAsText(
      before.status === "disabled"
        ? "The tenant was disabled already."
        : `${counted(active, "active key")} of the tenant ${active === 1 ? "gets" : "get"} 401 from now on.`
    )
    yield* inForce(null)
  })
).pipe(
  described("Disable all keys of a tenant until it is enabled again", "tollgate disable-tenant --tenant acme")
)

export const enableTenant = Command.make(
  "enable-tenant",
  { tenant: flags.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Needs.registry
    yield* showTenant(yield* registry.setTenantEnabled(tenant, true))
    yield* inForce(null)
  })
).pipe(described("Enable a disabled tenant", "tollgate enable-tenant --tenant acme"))

export const renameTenant = Command.make(
  "rename-tenant",
  { tenant: flags.tenant, name: flags.text("name", "name", "The new name") },
  Effect.fnUntraced(function* ({ name, tenant }) {
    const registry = yield* Needs.registry
    yield* showTenant(yield* registry.renameTenant(tenant, name))
    yield* inForce(null)
    yield* noteAsText("Files of apply and dashboards name tenants: change the name there too.")
  })
).pipe(
  described(
    "Give a tenant another name; keys, limits and what was used stay",
    "tollgate rename-tenant --tenant acme --name acme-labs"
  )
)

export const deleteTenant = Command.make(
  "delete-tenant",
  { tenant: flags.tenant },
  Effect.fnUntraced(function* ({ tenant }) {
    const registry = yield* Needs.registry
    yield* registry.deleteTenant(tenant)
    yield* show({ tenant, deleted: true }, `${escapeText(tenant)} is deleted`)
  })
).pipe(
  described(
    "Delete a tenant that has no keys and never used anything; others can be disabled",
    "tollgate delete-tenant --tenant acmee"
  )
)

export const showUsage = Command.make(
  "show-usage",
  {
    ...flags.owner,
    user: flags.optional(flags.endUser.user),
    period: Flag.Literals("period", periods).pipe(
      Flag.withDescription("The current day, week or month, or everything"),
      Flag.withDefault("day")
    )
  },
  Effect.fnUntraced(function* ({ period, user, ...given }) {
    const registry = yield* Needs.registry
    const owner = yield* flags.readOwner(given, "tenant")
    if ("key" in owner && user === undefined) return yield* mustBe("user", "given with --key")
    const used =
      "tenant" in owner && user === undefined
        ? yield* registry.usage(owner.tenant, period)
        : yield* (yield* Needs.records).usageOfUser(owner, period, user ?? "")
    yield* show(
      { ...owner, ...(user === undefined ? {} : { user }), period, ...used },
      tableOf([used], {
        [Object.keys(owner).join().toUpperCase()]: () => Object.values(owner).join(),
        ...(user === undefined ? {} : { USER: () => user }),
        PERIOD: () => period,
        REQUESTS: ({ requests }) => requests,
        TOKENS_IN: ({ tokensIn }) => tokensIn,
        TOKENS_CACHED: ({ tokensCached }) => tokensCached,
        TOKENS_OUT: ({ tokensOut }) => tokensOut
      })
    )
    if (!("tenant" in owner)) return
    const { extraBudget } = yield* registry.tenantExtra(owner.tenant)
    if (extraBudget !== null && extraBudget.until.getTime() > (yield* Clock.currentTimeMillis)) {
      const until = (yield* times)(extraBudget.until, "end")
      yield* noteAsText(`extra budget: ${amount(extraBudget.tokens)} tokens until ${until}`)
    }
  })
).pipe(
  described(
    "Show what a tenant used, from the ledger; or one end user, from the audit",
    "tollgate show-usage --tenant acme --period month",
    "tollgate show-usage --key webui --user ada@example.com --period month"
  )
)
