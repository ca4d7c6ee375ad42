import { Effect } from "effect"
import { Command } from "effect/cli"
import { Registry } from "../../src/admin/Registry.ts"
import { declarationOf, readState, writeDeclaration } from "../declaration.ts"
import { show } from "../terminal.ts"

export const exportTenants = Command.make(
  "export",
  {},
  Effect.fnUntraced(function* () {
    const registry = yield* Registry
    const { keys, tenants } = yield* readState(registry)
    const declaration = declarationOf(tenants, keys)
    yield* show(declaration, writeDeclaration(declaration).trimEnd())
  })
).pipe(
  Command.withDescription("Print all tenants and the settings of their keys as a file for apply"),
  Command.withExamples([{ command: "tollgate export > tenants.yaml" }])
)
