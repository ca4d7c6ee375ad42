/** The running processes of the gateway, and the last report of each, in a table of the database. For `tollgate status`. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Schema } from "effect"
import { makeRowReader } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"

/** All times are the database's. */
const Replica = Schema.Struct({
  /** random, new at each start */
  id: Schema.String,
  host: Schema.String,
  version: Schema.String,
  started: Schema.Date,
  /** seconds since then */
  upS: Schema.Finite,
  /** seconds since its last report */
  silentS: Schema.Finite,
  /** whether it reports */
  alive: Schema.Boolean,
  /** seconds until a process that does not report is not listed any more */
  leavesInS: Schema.Finite,
  /** values by name; a gauge with labels has one entry for each, as `name{value}`; null: no finite value */
  gauges: Schema.Record(Schema.String, Schema.NullOr(Schema.Finite))
})
export type Replica = typeof Replica.Type

/** A process reports this often, in seconds. */
export const reportEveryS = 5
/** After this many seconds without a report a process counts as gone. */
const goneAfterS = 3 * reportEveryS
/** The row of a process that ended without a word is deleted after this many seconds. */
export const forgetAfterS = 3600

const replicas = makeRowReader(({ id }) => `replica ${String(id)}`, Replica)

const make = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const bounded = timeoutDetached("2 seconds")
  return {
    /** Writes the row of a process. It also deletes rows of processes that have been silent for `forgetAfterS`. */
    report: ({ gauges, host, id, version }: Pick<Replica, "id" | "host" | "version" | "gauges">) =>
      Effect.asVoid(
        bounded(pg`
          WITH forgotten AS (
            DELETE FROM replicas
            WHERE seen_at < now() - make_interval(secs => ${forgetAfterS}) AND id <> ${id}::text::uuid
          )
          INSERT INTO replicas (id, host, version, gauges)
          VALUES (${id}::text::uuid, ${host}, ${version}, ${pg.json(gauges)})
          ON CONFLICT (id) DO UPDATE SET seen_at = now(), gauges = excluded.gauges`)
      ),
    /** Deletes the row of a process that ends. */
    leave: (id: string) => Effect.asVoid(bounded(pg`DELETE FROM replicas WHERE id = ${id}::text::uuid`)),
    /** All rows, first those that report, the oldest process first. */
    list: bounded(
      replicas.all(pg`
          SELECT id::text, host, version, started, gauges, "upS", "silentS",
            "silentS" <= ${goneAfterS} AS alive, ${forgetAfterS}::float8 - "silentS" AS "leavesInS"
          FROM (SELECT *, started_at AS started,
              extract(epoch FROM clock_timestamp() - started_at)::float8 AS "upS",
              extract(epoch FROM clock_timestamp() - seen_at)::float8 AS "silentS" FROM replicas) r
          ORDER BY alive DESC, started, id`)
    )
  }
})

export class Replicas extends Context.Service<Replicas>()("tollgate/replicas/Replicas", { make }) {}

export const layerPostgres: Layer.Layer<Replicas, never, PgClient.PgClient> = Layer.effect(Replicas, make)
