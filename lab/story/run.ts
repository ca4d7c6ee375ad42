/**
 * `npm run story`: how much of `src` runs for one streamed chat, on a real Postgres and a real Redis, in front of a fake model
 * server. `-- --way` prints the way too, a line for each change of file; `-- --checkout <folder>` counts another version.
 */
import { resolve } from "node:path"
import { parseArgs } from "node:util"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect, Redacted } from "effect"
import { makePostgresCluster } from "../../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"
import { type Story, tellStory } from "../../test/support/story/Story.ts"

const { checkout, way } = parseArgs({
  options: {
    checkout: { type: "string", default: resolve(import.meta.dirname, "../..") },
    way: { type: "boolean", default: false }
  }
}).values

const wayOf = (calls: Story["calls"]) =>
  calls.map(({ file, line, name }, i) =>
    file === calls[i - 1]?.file ? ` ${name || line}` : `\n${file}: ${name || line}`
  )

const told = Effect.gen(function* () {
  const postgres = yield* makePostgresCluster
  const redis = yield* makeRedisServer(findRedis())
  const { calls, changes, files, functions } = yield* tellStory(resolve(checkout), {
    databaseUrl: Redacted.value(postgres.url("postgres")),
    redisUrl: redis.url
  })
  process.stdout.write(
    `${way ? `${wayOf(calls).join("").trimStart()}\n\n` : ""}one streamed chat: ${functions} functions, ${files} files, ${calls.length} calls, ${changes} changes of file\n`
  )
})

NodeRuntime.runMain(Effect.scoped(told))
