/** The command tree, and how a command line is run. What a command needs is made when it runs, so `--help` needs no database. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { connect } from "./commands/connect.ts"
import { createKeys } from "./commands/create-keys.ts"
import * as file from "./commands/file.ts"
import * as keys from "./commands/keys.ts"
import { listModels, setModels } from "./commands/models.ts"
import * as promptLog from "./commands/prompt-log.ts"
import { reconcile } from "./commands/reconcile.ts"
import { report } from "./commands/report.ts"
import { requests, showRequest } from "./commands/requests.ts"
import * as service from "./commands/service.ts"
import * as attributes from "./commands/attributes.ts"
import * as users from "./commands/users.ts"
import * as tenants from "./commands/tenants.ts"
import { makePresenter, reportFailure, wantsJson } from "./exit.ts"
import { layerHelp, withoutHelpCommand } from "./help.ts"
import { Needs, type Parts } from "./Needs.ts"
import { Zone } from "./zone.ts"
import { Json, Wide } from "./terminal.ts"

const program = Command.make("tollgate").pipe(
  Command.withDescription("Administers the gateway: tenants, keys, limits, budgets, models and usage"),
  Command.withSubcommands([
    {
      group: "Tenants",
      commands: [
        tenants.createTenant,
        tenants.listTenants,
        tenants.disableTenant,
        tenants.enableTenant,
        tenants.renameTenant,
        tenants.deleteTenant,
        setModels,
        listModels,
        tenants.showUsage
      ]
    },
    {
      group: "Keys",
      commands: [
        keys.createKey,
        createKeys,
        keys.listKeys,
        keys.showKey,
        keys.rotateKey,
        keys.revokeKey,
        keys.moveKey,
        keys.disableKey,
        keys.enableKey,
        attributes.setBudget,
        attributes.addBudget,
        attributes.showBudget,
        attributes.setEndUser,
        users.blockUser,
        users.unblockUser,
        users.exportUser,
        users.eraseUser,
        attributes.setPromptLog,
        promptLog.showPromptLog,
        promptLog.erasePromptLog
      ]
    },
    { group: "Tenants and keys", commands: [attributes.setLimits, file.exportTenants, file.apply] },
    { group: "Records", commands: [report, requests, showRequest, reconcile] },
    {
      group: "Service",
      commands: [service.status, service.doctor, service.testAlert, connect, service.serve, service.migrate]
    }
  ]),
  Command.withGlobalFlags([Json, Wide])
)

/** The names of all commands. */
export const commands = program.subcommands.flatMap((group) => group.commands.map(({ name }) => name))

/** Runs one command line and returns its exit code. Every failure becomes a line on stderr. */
export const runCommandLine = (
  needs: Parts,
  version: string,
  args: ReadonlyArray<string>
): Effect.Effect<number> => {
  const json = wantsJson(args)
  return Command.runWith(program, { version })(withoutHelpCommand(args, commands)).pipe(
    Effect.scoped,
    Effect.provideServiceEffect(Needs, Needs.once(needs)),
    Effect.provideServiceEffect(Zone, Effect.cached(needs.calendar)),
    Effect.as(0),
    Effect.catchCause((cause) => reportFailure(cause, json)),
    Effect.provide(Layer.mergeAll(NodeServices.layer, makePresenter(json, commands), layerHelp))
  )
}
