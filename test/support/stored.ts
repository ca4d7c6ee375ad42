/** Everything the stores hold, as text: for tests that look for what must not be there. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Redis } from "ioredis"

const decodeNames = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ name: Schema.String })))
const decodeRows = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ row: Schema.String })))

/** Each row of each table of the schema, by table. */
export const storedInPostgres = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const tables = yield* decodeNames(
    yield* sql`SELECT tablename::text AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY 1`
  )
  const stored = new Map<string, string>()
  for (const { name } of tables) {
    const rows = yield* decodeRows(yield* sql`SELECT t::text AS row FROM ${sql(name)} AS t`)
    stored.set(name, rows.map(({ row }) => row).join("\n"))
  }
  return stored
})

const valueOf = async (redis: Redis, key: string): Promise<unknown> => {
  switch (await redis.type(key)) {
    case "string":
      return redis.get(key)
    case "hash":
      return redis.hgetall(key)
    case "zset":
      return redis.zrange(key, "0", "-1")
    case "set":
      return redis.smembers(key)
    case "list":
      return redis.lrange(key, 0, -1)
    case "stream":
      return redis.xlen(key)
    default:
      return "none"
  }
}

/** Names and values of every key of every database, a line each. */
export const storedInRedis = (url: string): Effect.Effect<ReadonlyArray<string>> =>
  Effect.promise(async () => {
    const redis = new Redis(url, { lazyConnect: true })
    await redis.connect()
    const lines: Array<string> = []
    for (const [, database = "0"] of (await redis.info("keyspace")).matchAll(/^db(\d+):/gm)) {
      await redis.select(Number(database))
      for (const key of await redis.keys("*"))
        lines.push(`${key} ${JSON.stringify(await valueOf(redis, key))}`)
    }
    redis.disconnect()
    return lines
  })
