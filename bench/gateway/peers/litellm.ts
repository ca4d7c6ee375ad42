import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { type Contender, most, nobody } from "../contenders.ts"
import { serve } from "../processes.ts"
import { folder, type Peer, run } from "./peer.ts"

const version = "1.103.7"

/**
 * Beside it what it needs but does not bring: without OpenTelemetry (of the version its extra `proxy-runtime` pins) it tries
 * in vain to import it for every request, without prisma a wrong key is answered with 500.
 */
const packages = [
  `litellm[proxy]==${version}`,
  "prisma==0.15.0",
  "opentelemetry-api==1.28.0",
  "opentelemetry-sdk==1.28.0"
]

const keys = { good: "sk-good", poor: "sk-poor", nobody }

/** Stands in for its table of keys; what it says of a key, LiteLLM itself holds to. */
const keyTable = `
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.proxy_server import hash_token

limits = {
    "${keys.good}": dict(
        rpm_limit=${most}, tpm_limit=${most}, max_parallel_requests=100_000, max_budget=1e9, spend=0.0
    ),
    "${keys.poor}": dict(rpm_limit=1),
}

async def check(request, api_key):
    if api_key not in limits:
        raise Exception("no such key")
    return UserAPIKeyAuth(api_key=hash_token(api_key), models=["short", "paced"], **limits[api_key])
`

const configOf = (backendUrl: string, redisUrl: string) => ({
  model_list: ["short", "paced"].map((model) => ({
    model_name: model,
    litellm_params: {
      model: `openai/${model}`,
      api_base: `${backendUrl}/v1`,
      api_key: "none",
      // Without a price nothing is spent, and no budget is counted.
      input_cost_per_token: 1e-6,
      output_cost_per_token: 1e-6
    }
  })),
  general_settings: {
    master_key: "sk-master",
    custom_auth: "keys.check",
    custom_auth_run_common_checks: true,
    coordination_redis: { url: redisUrl }
  },
  litellm_settings: { enable_post_custom_auth_checks: true }
})

/** From PyPI, into a folder that goes with the run; the program that starts it. Takes a minute and 700 MB. */
const install = Effect.gen(function* () {
  const venv = join(yield* folder, "venv")
  yield* run("python3", ["-m", "venv", venv])
  yield* run(join(venv, "bin/pip"), ["install", "--quiet", ...packages])
  return join(venv, "bin/litellm")
})

/**
 * LiteLLM's proxy with a key's models, requests and tokens a minute, requests at a time and budget, all counted in Redis.
 * Without its database, because the engine of its database client is not in the package: it is downloaded on first use.
 * So keys come from a table in memory, and nothing is written down of a request. Not the newest version, which asks for a
 * newer certifi than there was.
 */
export const litellm: Peer = {
  name: "litellm",
  variable: "PEER_LITELLM",
  installs: true,
  has: "keys in memory, limits and a budget of a key in Redis, no database, so no row for a request",
  start: Effect.fnUntraced(function* (given, { backendUrl, redisUrl }) {
    const program = given ?? (yield* install)
    const home = yield* folder
    const config = join(home, "config.yaml")
    yield* Effect.sync(() => {
      writeFileSync(join(home, "keys.py"), keyTable)
      // JSON is YAML.
      writeFileSync(config, JSON.stringify(configOf(backendUrl, redisUrl)))
    })
    const served = yield* serve(
      "0",
      ["--config", config, "--host", "127.0.0.1", "--port", "{port}", "--num_workers", "1"],
      {
        // Whoever has Tollgate's in the environment does not want another's tables in it.
        DATABASE_URL: undefined,
        LITELLM_MODE: "PRODUCTION",
        // Prices from the package and not from the net.
        LITELLM_LOCAL_MODEL_COST_MAP: "True",
        // A line a request would be measured too.
        LITELLM_LOG: "ERROR"
      },
      { program, silent: true, idleS: 2 }
    )
    const contender: Contender = { ...served, name: "litellm", keys }
    return contender
  })
}
