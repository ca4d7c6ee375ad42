/**
 * Gateways by others, installed for the run into a folder of their own, because nothing else here needs them. Each is
 * one process on one core, like Tollgate.
 */
import { execFile } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { type Contender, most, nobody } from "./contenders.ts"
import { serve } from "./processes.ts"

const versions = { portkey: "1.15.2", litellm: "1.103.7" }

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "tollgate-bench-"))),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

/** A program that is waited for. */
const run = (program: string, args: ReadonlyArray<string>) =>
  Effect.callback<void, Error>((resume) => {
    execFile(program, args, (error) => resume(error === null ? Effect.void : Effect.fail(error)))
  })

/** The nearest peer on npm, forwarding only: no auth, no limits, nothing stored. */
const portkey = Effect.fnUntraced(function* (backendUrl: string) {
  const home = yield* folder
  yield* run("npm", [
    "install",
    "--prefix",
    home,
    "--no-audit",
    "--no-fund",
    `@portkey-ai/gateway@${versions.portkey}`
  ])
  const script = join(home, "node_modules/@portkey-ai/gateway/build/start-server.js")
  const served = yield* serve(0, [script, "--headless", "--port={port}"], { NODE_ENV: "production" })
  const contender: Contender = {
    ...served,
    name: "portkey",
    keys: { good: nobody, poor: nobody, nobody },
    headers: { "x-portkey-provider": "openai", "x-portkey-custom-host": `${backendUrl}/v1` }
  }
  return contender
})

/**
 * Beside it what it needs but does not bring: without OpenTelemetry (of the version its extra `proxy-runtime` pins) it tries
 * in vain to import it for every request, without prisma a wrong key is answered with 500.
 */
const litellmPackages = [
  `litellm[proxy]==${versions.litellm}`,
  "prisma==0.15.0",
  "opentelemetry-api==1.28.0",
  "opentelemetry-sdk==1.28.0"
]

const litellmKeys = { good: "sk-good", poor: "sk-poor", nobody }

/** Stands in for its table of keys; what it says of a key, LiteLLM itself holds to. */
const litellmKeyTable = `
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.proxy_server import hash_token

limits = {
    "${litellmKeys.good}": dict(
        rpm_limit=${most}, tpm_limit=${most}, max_parallel_requests=100_000, max_budget=1e9, spend=0.0
    ),
    "${litellmKeys.poor}": dict(rpm_limit=1),
}

async def check(request, api_key):
    if api_key not in limits:
        raise Exception("no such key")
    return UserAPIKeyAuth(api_key=hash_token(api_key), models=["short"], **limits[api_key])
`

const litellmConfig = (backendUrl: string, redisUrl: string) => ({
  model_list: [
    {
      model_name: "short",
      litellm_params: {
        model: "openai/short",
        api_base: `${backendUrl}/v1`,
        api_key: "none",
        // Without a price nothing is spent, and no budget is counted.
        input_cost_per_token: 1e-6,
        output_cost_per_token: 1e-6
      }
    }
  ],
  general_settings: {
    master_key: "sk-master",
    custom_auth: "keys.check",
    custom_auth_run_common_checks: true,
    coordination_redis: { url: redisUrl }
  },
  litellm_settings: { enable_post_custom_auth_checks: true }
})

/**
 * LiteLLM's proxy with a key's models, requests and tokens a minute, requests at a time and budget, all counted in Redis;
 * without its database, so keys come from a table in memory and nothing is written down of a request. The engine of its
 * database client is not in the package, it is downloaded on first use. Not the newest version, which asks for a newer certifi
 * than there was. Takes a minute and 700 MB.
 */
const litellm = Effect.fnUntraced(function* (backendUrl: string, redisUrl: string) {
  const home = yield* folder
  const [venv, config] = [join(home, "venv"), join(home, "config.yaml")]
  yield* run("python3", ["-m", "venv", venv])
  yield* run(join(venv, "bin/pip"), ["install", "--quiet", ...litellmPackages])
  yield* Effect.sync(() => {
    writeFileSync(join(home, "keys.py"), litellmKeyTable)
    // JSON is YAML.
    writeFileSync(config, JSON.stringify(litellmConfig(backendUrl, redisUrl)))
  })
  const served = yield* serve(
    0,
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
    { program: join(venv, "bin/litellm") }
  )
  const contender: Contender = { ...served, name: "litellm", keys: litellmKeys }
  return contender
})

/** The line of a failed installation that names its reason; `Command failed` only repeats what was run. */
const reasonOf = (error: unknown): string => {
  const lines = String(error).split("\n")
  const reason = lines.slice(1).find((line) => /error/i.test(line)) ?? lines[0] ?? ""
  return reason.slice(0, 200)
}

/** Those that can be had here; why another cannot is said in a line, and the run goes on without it. */
export const peers = Effect.fnUntraced(function* (
  backendUrl: string,
  redisUrl: string,
  say: (line: string) => Effect.Effect<void>
) {
  // Tollgate's keys are in the first of its databases.
  const all = { portkey: portkey(backendUrl), litellm: litellm(backendUrl, `${redisUrl}/1`) }
  const there: Array<Contender> = []
  for (const [name, peer] of Object.entries(all))
    yield* Effect.matchEffect(peer, {
      onSuccess: (contender) => Effect.sync(() => void there.push(contender)),
      onFailure: (error) => say(`${name} is left out: ${reasonOf(error)}\n`)
    })
  return there
})
