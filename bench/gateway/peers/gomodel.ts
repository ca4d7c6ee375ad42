import { join } from "node:path"
import { Effect } from "effect"
import { type Contender, nobody } from "../contenders.ts"
import { serve } from "../processes.ts"
import { folder, type Peer } from "./peer.ts"

const keys = { good: "good", poor: nobody, nobody }

/** It has one key for all, no limits, and budgets that are sums over its table of usage. */
export const gomodel: Peer = {
  name: "gomodel",
  variable: "PEER_GOMODEL",
  installs: false,
  has: "one master key, a budget summed from its table at each request, usage and audit rows written every 5 s to SQLite",
  start: Effect.fnUntraced(function* (program, { backendUrl }) {
    const home = yield* folder
    const served = yield* serve(
      "0",
      [],
      {
        GOMODEL_MASTER_KEY: keys.good,
        GOMODEL_CACHE_DIR: join(home, "cache"),
        SQLITE_PATH: join(home, "gomodel.db"),
        OPENAI_API_KEY: "none",
        OPENAI_BASE_URL: `${backendUrl}/v1`,
        // Prices are not fetched from the net; without one a budget is still read at each request.
        MODEL_LIST_URL: "",
        LOGGING_ENABLED: "true",
        USAGE_ENABLED: "true",
        SET_BUDGET_: "daily=1000000000,monthly=1000000000",
        RETRY_MAX_RETRIES: "0",
        LOG_LEVEL: "error"
      },
      { program, folder: home, silent: true, idleS: 2 }
    )
    const contender: Contender = { ...served, name: "gomodel", keys }
    return contender
  })
}
