/**
 * What reads the audit log and the ledger beside the requests, timed: the queries of the operations guide, as it gives
 * them, on a client as plain as psql; the commands that read the ledger, and the comparison of the counters with it, on
 * the gateway's own client.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Clock, Data, Effect } from "effect"
import { SqlClient } from "effect/sql"
import { readLedgerTotals } from "../../src/ledger/counterTruths.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { blocks, readPaper } from "../../test/support/Paper.ts"
import type { Stores } from "./contenders.ts"
import { plainly } from "./log.ts"

/** One that is timed: its name, and milliseconds. */
export interface Read {
  readonly name: string
  readonly ms: number
}

class NotInTheGuide extends Data.TaggedError("NotInTheGuide")<{ readonly query: string }> {}

const queries = ["docs/audit.md", "docs/run.md"]
  .flatMap((page) => blocks(readPaper(page), "sql"))
  .join("\n")
  .replaceAll(/^--.*$/gm, "")
  .split(";")

/** The query that says so. */
const guided = (query: string) => {
  const found = queries.find((text) => text.includes(query))
  return found === undefined ? Effect.fail(new NotInTheGuide({ query })) : Effect.succeed(found)
}

const rounds = 3

/** The median: the first is colder than the others. */
const timed = <E, R>(name: string, read: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const times: Array<number> = []
    for (let round = 0; round < rounds; round += 1) {
      const began = performance.now()
      yield* read
      times.push(performance.now() - began)
    }
    const ms = times.sort((a, b) => a - b)[Math.floor(rounds / 2)] ?? Number.NaN
    return { name, ms } satisfies Read
  })

/** Deleted rows come back, for the next round and the next measurement. */
const undone = (statement: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`BEGIN`
    yield* Effect.ensuring(sql.unsafe(statement), Effect.orDie(sql`ROLLBACK`))
  })

const busiest = "tg_000000000"

const guide = (unused: string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const did = yield* guided("key_prefix =")
    const [any] = yield* sql<{ readonly id: string }>`SELECT request_id::text AS id FROM audit_log LIMIT 1`
    const retention = yield* guided("DELETE FROM audit_log")
    const one = yield* guided("SELECT * FROM audit_log")
    const refused = yield* guided("error_type")
    const guessing = yield* guided("client_ip, count")
    const spending = yield* guided("FROM ledger")
    const of = (prefix: string) => did.replace(/tg_\w{9}/, prefix)
    return [
      yield* timed("what the busiest key did", sql.unsafe(of(busiest))),
      yield* timed("what a key did that did nothing", sql.unsafe(of(unused))),
      yield* timed("one request", sql.unsafe(one.replace(/'[\w-]{36}'/, `'${any?.id ?? ""}'`))),
      yield* timed("refused in the last hour", sql.unsafe(refused)),
      yield* timed("guessing in the last hour", sql.unsafe(guessing)),
      yield* timed("who spends what today", sql.unsafe(spending)),
      yield* timed("retention, of the oldest day", undone(retention.replace("400 days", "399 days")))
    ]
  })

const gateway = Effect.gen(function* () {
  const [pg, registry] = [yield* PgClient.PgClient, yield* Registry]
  const keys = yield* pg<{ readonly id: string }>`
    SELECT id::text FROM api_keys WHERE name LIKE 'filler-%' LIMIT 1000`
  const compare = Effect.flatMap(Clock.currentTimeMillis, (at) =>
    readLedgerTotals(
      pg,
      keys.map(({ id }) => ({ group: "", key: id })),
      at
    )
  )
  return [
    yield* timed("`show-usage --period day`", registry.usage("filler-0", "day")),
    yield* timed("`show-usage --period total`", registry.usage("filler-0", "total")),
    yield* timed("`show-budget`", registry.showBudgets(busiest)),
    yield* timed("1,000 keys compared with the ledger", compare)
  ]
}).pipe(Effect.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } })))

/** Run with a log that `fillLog` has filled. */
export const readers = Effect.fnUntraced(function* (stores: Stores) {
  const told = yield* Effect.provide(guide(prefixOf(stores.keys.poor)), plainly(stores))
  return [...told, ...(yield* Effect.provide(gateway, stores.database))]
})
