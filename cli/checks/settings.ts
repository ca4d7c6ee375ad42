/** Checks of the settings that this command sees: those of its own environment. */
import { Effect, Result } from "effect"
import { readSettings, table } from "../../src/Settings.ts"
import { type Check, failed, ok } from "./Check.ts"

export const settingsChecks: Effect.Effect<ReadonlyArray<Check>> = Effect.sync(() => {
  const settings = readSettings(process.env)
  const given = Object.values(table).filter(({ name }) => (process.env[name] ?? "") !== "")
  const node: Check = ok("Node", process.versions.node)
  return Result.isSuccess(settings)
    ? [node, ok("settings", `${given.length} of ${Object.keys(table).length} are set, all valid`)]
    : [
        node,
        ...settings.failure.map(({ expected, given, setting }) =>
          failed("settings", `${setting}: got ${given}`, `expected ${expected}`)
        )
      ]
})
