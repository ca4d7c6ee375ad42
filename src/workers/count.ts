/** How many workers a gateway has. */
import { availableParallelism } from "node:os"
import type { SettingsValues } from "../Settings.ts"

/**
 * Without a database, Redis and a model server of its own settings a gateway keeps its state in one process, so it has one
 * worker. `auto`: one for each core, as many as a container may use.
 */
export const workersOf = (settings: SettingsValues, cores: number = availableParallelism()): number => {
  const { backendUrl, databaseUrl, redisUrl, workers } = settings
  if (databaseUrl === undefined || redisUrl === undefined || backendUrl === undefined) return 1
  return workers === "auto" ? Math.min(maxWorkers, Math.max(1, cores)) : workers
}

export const maxWorkers = 64
