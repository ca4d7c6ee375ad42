/** Bifrost, a gateway by others, when its program is there (`PEER_BIFROST`). */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { type Contender, most } from "./contenders.ts"
import { serve } from "./processes.ts"
import { bodyOf, table, type Work } from "./works.ts"
import { temporaryFolder } from "../../test/support/temporaryFolder.ts"

const secret = "sk-bf-good"

/** By name too, because version 1.4 does not know `*`. */
const models = ["*", "short", "paced"]

const key = {
  id: "good",
  name: "good",
  value: secret,
  is_active: true,
  rate_limit_id: "good",
  budget_id: "day",
  provider_configs: [
    {
      provider: "openai",
      allowed_models: models,
      key_ids: ["*"],
      weight: 1,
      budget_id: "month"
    }
  ]
}

/** All that Bifrost has of what Tollgate does: virtual keys, limits, budgets, and a row for each request. */
const configOf = (backendUrl: string, home: string) => ({
  client: {
    enable_logging: true,
    // Tollgate keeps no prompts either, unless a key asks for it.
    disable_content_logging: true,
    enforce_auth_on_inference: true,
    drop_excess_requests: false
  },
  config_store: { enabled: true, type: "sqlite", config: { path: join(home, "config.db") } },
  logs_store: { enabled: true, type: "sqlite", config: { path: join(home, "logs.db") } },
  framework: { pricing: { pricing_url: `${backendUrl}/prices`, pricing_sync_interval: 86_400 } },
  governance: {
    // Version 1.4 finds the budgets from the key and from its provider, later ones find the key from the budget.
    budgets: [
      { id: "day", max_limit: 1e9, reset_duration: "1d", virtual_key_id: "good" },
      { id: "month", max_limit: 1e9, reset_duration: "1M", virtual_key_id: "good" }
    ],
    rate_limits: [
      {
        id: "good",
        request_max_limit: most,
        request_reset_duration: "1m",
        token_max_limit: most,
        token_reset_duration: "1m"
      }
    ],
    virtual_keys: [key]
  },
  providers: {
    openai: {
      keys: [{ name: "backend", value: "none", models, weight: 1 }],
      network_config: { base_url: backendUrl, max_retries: 0 },
      concurrency_and_buffer_size: { concurrency: 1000, buffer_size: 5000 }
    }
  }
})

/** The status and the body of one answer. */
const ask = ({ prefix, url }: Contender, work: Work, key: string) =>
  Effect.tryPromise(async (signal) => {
    const response = await fetch(url + work.path, {
      method: "POST",
      signal,
      headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
      body: bodyOf(work, prefix)
    })
    return { status: response.status, body: await response.text() }
  })

/**
 * It has answered a known key with 200, an object and a stream. What it answers to an unknown key is printed: a gateway that
 * checks no key does less than one that does. Go uses as many threads as it may use cores, so one core needs no setting.
 */
export const startBifrost = Effect.fnUntraced(function* (
  program: string,
  backendUrl: string,
  say: (line: string) => Effect.Effect<void>
) {
  const home = yield* temporaryFolder
  yield* Effect.sync(() =>
    writeFileSync(join(home, "config.json"), JSON.stringify(configOf(backendUrl, home)))
  )
  const served = yield* serve(
    "0",
    ["-app-dir", home, "-host", "127.0.0.1", "-port", "{port}", "-log-level", "error"],
    {},
    { program, folder: home, silent: true, idleS: 2 }
  )
  const contender: Contender = { ...served, name: "bifrost", key: secret, prefix: "openai/" }
  for (const work of [table.json32, table.stream32]) {
    const { status, body } = yield* ask(contender, work, secret)
    if (status !== 200)
      return yield* Effect.fail(
        `Bifrost answered ${status} to its own key, ${work.name}: ${body.slice(0, 150)}`
      )
  }
  const unknown = yield* ask(contender, table.json32, "sk-bf-unknown")
  yield* say(
    "bifrost: virtual keys, limits and budgets counted in memory, log rows queued for SQLite and dropped when the queue is " +
      `full. An unknown key: ${unknown.status}.`
  )
  return contender
})
