/** Checks of the settings that this command sees: those of its own environment. */
import { Effect, Result } from "effect"
import { readSettings, table } from "../../src/Settings.ts"
import { type Check, failed, ok, warning } from "./Check.ts"

const unsigned = warning(
  "budget warnings",
  "ALERT_WEBHOOK_URL is set without ALERT_WEBHOOK_SECRET: they are not signed",
  "set it, unless only the gateway knows the URL"
)

export const settingsChecks: Effect.Effect<ReadonlyArray<Check>> = Effect.sync(() => {
  const settings = readSettings(process.env)
  const given = Object.values(table).filter(({ name }) => (process.env[name] ?? "") !== "")
  const node: Check = ok("Node", process.versions.node)
  if (Result.isSuccess(settings)) {
    const { alertWebhookSecret, alertWebhookUrl } = settings.success
    const isSigned = alertWebhookUrl === undefined || alertWebhookSecret !== undefined
    const valid = ok("settings", `${given.length} of ${Object.keys(table).length} are set, all valid`)
    return [node, valid, ...(isSigned ? [] : [unsigned])]
  }
  return [
    node,
    ...settings.failure.map(({ expected, given, setting }) =>
      failed("settings", `${setting}: got ${given}`, `expected ${expected}`)
    )
  ]
})
