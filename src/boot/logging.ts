/** One line a message: JSON for machines in production, readable text at a terminal. */
import { Layer, Logger, References } from "effect"
import type { SettingsValues } from "../Settings.ts"

const levels = {
  trace: "Trace",
  debug: "Debug",
  info: "Info",
  warn: "Warn",
  error: "Error",
  fatal: "Fatal",
  none: "None"
} as const satisfies Record<SettingsValues["logLevel"], unknown>

export const layerLogging = (settings: Pick<SettingsValues, "logLevel" | "production">) =>
  Layer.merge(
    Logger.layer([settings.production ? Logger.consoleJson : Logger.consolePretty()]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel])
  )
