/** The command tree. What a command needs is built when it runs, so that `--help` needs nothing. */
import type { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import type { SqlClient } from "effect/sql"
import type { Backend } from "../src/backend/Backend.ts"
import type { Registry } from "../src/registry/Registry.ts"
import { createKey } from "./commands/create-key.ts"
import { createTenant } from "./commands/create-tenant.ts"
import { disableKey } from "./commands/disable-key.ts"
import { disableTenant } from "./commands/disable-tenant.ts"
import { enableKey } from "./commands/enable-key.ts"
import { enableTenant } from "./commands/enable-tenant.ts"
import { listKeys } from "./commands/list-keys.ts"
import { makeListModels } from "./commands/list-models.ts"
import { listTenants } from "./commands/list-tenants.ts"
import { migrate } from "./commands/migrate.ts"
import { revokeKey } from "./commands/revoke-key.ts"
import { makeServe } from "./commands/serve.ts"
import { setBudget } from "./commands/set-budget.ts"
import { setLimits } from "./commands/set-limits.ts"
import { setModels } from "./commands/set-models.ts"
import { setPromptLog } from "./commands/set-prompt-log.ts"
import { showBudget } from "./commands/show-budget.ts"
import { showUsage } from "./commands/show-usage.ts"
import { Json } from "./terminal.ts"

export interface Needs<E> {
  /** the database as it is, its schema included */
  readonly registry: Layer.Layer<Registry, E>
  /** the database, whatever its schema */
  readonly database: Layer.Layer<SqlClient.SqlClient, E>
  readonly backend: Layer.Layer<Backend, E>
  /** runs the gateway until it is interrupted */
  readonly serve: Effect.Effect<void, E>
}

export const makeProgram = <E>(needs: Needs<E>) => {
  const onRegistry = Command.provide(needs.registry)
  return Command.make("tollgate").pipe(
    Command.withDescription("Administers the gateway: tenants, keys, limits, budgets, models and usage"),
    Command.withSubcommands([
      {
        group: "Tenants",
        commands: [
          createTenant.pipe(onRegistry),
          listTenants.pipe(onRegistry),
          disableTenant.pipe(onRegistry),
          enableTenant.pipe(onRegistry),
          setModels.pipe(onRegistry),
          makeListModels(needs.registry).pipe(Command.provide(needs.backend)),
          showUsage.pipe(onRegistry)
        ]
      },
      {
        group: "Keys",
        commands: [
          createKey.pipe(onRegistry),
          listKeys.pipe(onRegistry),
          revokeKey.pipe(onRegistry),
          disableKey.pipe(onRegistry),
          enableKey.pipe(onRegistry),
          setBudget.pipe(onRegistry),
          showBudget.pipe(onRegistry),
          setPromptLog.pipe(onRegistry)
        ]
      },
      { group: "Both", commands: [setLimits.pipe(onRegistry)] },
      { group: "Service", commands: [makeServe(needs.serve), migrate.pipe(Command.provide(needs.database))] }
    ]),
    Command.withGlobalFlags([Json])
  )
}
