/**
 * The command tree, and how a command line is run. The layers of a command are built when it runs, so that `--help` needs no
 * database.
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import type { SqlClient } from "effect/sql"
import type { Backend } from "../src/backend/Backend.ts"
import type { Books } from "../src/admin/books/Books.ts"
import type { Records } from "../src/admin/records/Records.ts"
import type { Registry } from "../src/admin/Registry.ts"
import type { Replicas } from "../src/replicas/Replicas.ts"
import type { Check } from "./checks/Check.ts"
import { connect } from "./commands/connect.ts"
import * as file from "./commands/file.ts"
import * as keys from "./commands/keys.ts"
import { createKeys } from "./commands/create-keys.ts"
import { makeListModels, setModels } from "./commands/models.ts"
import * as promptLog from "./commands/prompt-log.ts"
import { makeDoctor, makeServe, makeStatus, migrate } from "./commands/service.ts"
import * as settings from "./commands/settings.ts"
import * as tenants from "./commands/tenants.ts"
import { reconcile } from "./commands/reconcile.ts"
import { report } from "./commands/report.ts"
import { requests, showRequest } from "./commands/requests.ts"
import { makePresenter, reportFailure, wantsJson } from "./exit.ts"
import { layerHelp, withoutHelpCommand } from "./help.ts"
import { Installed } from "./modelHints.ts"
import { Json } from "./terminal.ts"

export interface Needs<E, S> {
  /** needs a database with the current schema */
  readonly registry: Layer.Layer<Registry, E>
  /** needs a database with the current schema */
  readonly records: Layer.Layer<Records, E>
  /** needs a database with the current schema, and the counters where there is a Redis */
  readonly books: Layer.Layer<Books, E>
  /** the database, with any schema */
  readonly database: Layer.Layer<SqlClient.SqlClient, E>
  readonly backend: Layer.Layer<Backend, E>
  readonly replicas: Layer.Layer<Replicas, E>
  /** what `status` and `doctor` check; none of them fails */
  readonly checks: {
    readonly status: Readonly<Record<"database" | "cache" | "backend", Effect.Effect<ReadonlyArray<Check>>>>
    readonly doctor: ReadonlyArray<Effect.Effect<ReadonlyArray<Check>>>
  }
  /** runs the gateway until it is interrupted */
  readonly serve: Effect.Effect<void, S>
}

const makeProgram = <E, S>(needs: Needs<E, S>) => {
  const registry = Layer.merge(needs.registry, Installed.layer(needs.backend))
  return Command.make("tollgate").pipe(
    Command.withDescription("Administers the gateway: tenants, keys, limits, budgets, models and usage"),
    Command.withSubcommands([
      {
        group: "Tenants",
        commands: [
          tenants.createTenant.pipe(Command.provide(registry)),
          tenants.listTenants.pipe(Command.provide(registry)),
          tenants.disableTenant.pipe(Command.provide(registry)),
          tenants.enableTenant.pipe(Command.provide(registry)),
          tenants.renameTenant.pipe(Command.provide(registry)),
          tenants.deleteTenant.pipe(Command.provide(registry)),
          setModels.pipe(Command.provide(registry)),
          makeListModels(needs.registry).pipe(Command.provide(needs.backend)),
          tenants.showUsage.pipe(Command.provide(registry))
        ]
      },
      {
        group: "Keys",
        commands: [
          keys.createKey.pipe(Command.provide(registry)),
          createKeys.pipe(Command.provide(registry)),
          keys.listKeys.pipe(Command.provide(registry)),
          keys.showKey.pipe(Command.provide(registry)),
          keys.rotateKey.pipe(Command.provide(registry)),
          keys.revokeKey.pipe(Command.provide(registry)),
          keys.moveKey.pipe(Command.provide(registry)),
          keys.disableKey.pipe(Command.provide(registry)),
          keys.enableKey.pipe(Command.provide(registry)),
          settings.setBudget.pipe(Command.provide(registry)),
          settings.showBudget.pipe(Command.provide(registry)),
          settings.setEndUser.pipe(Command.provide(registry)),
          settings.setPromptLog.pipe(Command.provide(registry)),
          promptLog.showPromptLog.pipe(Command.provide(registry)),
          promptLog.erasePromptLog.pipe(Command.provide(registry))
        ]
      },
      {
        group: "Tenants and keys",
        commands: [
          settings.setLimits.pipe(Command.provide(registry)),
          file.exportTenants.pipe(Command.provide(registry)),
          file.apply.pipe(Command.provide(registry))
        ]
      },
      {
        group: "Records",
        commands: [
          report.pipe(Command.provide(needs.records)),
          requests.pipe(Command.provide(needs.records)),
          showRequest.pipe(Command.provide(needs.records)),
          reconcile.pipe(Command.provide(needs.books))
        ]
      },
      {
        group: "Service",
        commands: [
          makeStatus({ replicas: needs.replicas, ...needs.checks.status }),
          makeDoctor(needs.checks.doctor),
          connect,
          makeServe(needs.serve),
          migrate.pipe(Command.provide(needs.database))
        ]
      }
    ]),
    Command.withGlobalFlags([Json])
  )
}

/** Runs one command line and returns its exit code. Every failure becomes a line on stderr. */
export const runCommandLine = <E, S>(
  needs: Needs<E, S>,
  version: string,
  args: ReadonlyArray<string>
): Effect.Effect<number> => {
  const json = wantsJson(args)
  const program = makeProgram(needs)
  const commands = program.subcommands.flatMap((group) => group.commands.map(({ name }) => name))
  return Command.runWith(program, { version })(withoutHelpCommand(args, commands)).pipe(
    Effect.as(0),
    Effect.catchCause((cause) => reportFailure(cause, json)),
    Effect.provide(Layer.mergeAll(NodeServices.layer, makePresenter(json, commands), layerHelp))
  )
}
