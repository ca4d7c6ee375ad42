/** The processes in a table of the database. All times are the database's. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Schema } from "effect"
import { makeRowReader } from "../infra/rows.ts"
import { timeoutDetached } from "../infra/time.ts"
import { forgetAfterS, Replicas, ReplicasDown } from "./Replicas.ts"

const Row = Schema.Struct({
  id: Schema.String,
  host: Schema.String,
  version: Schema.String,
  started: Schema.Date,
  upS: Schema.Finite,
  silentS: Schema.Finite,
  gauges: Schema.Record(Schema.String, Schema.NullOr(Schema.Finite))
})
const replicas = makeRowReader(({ id }) => `replica ${String(id)}`, Row)

const make = Effect.gen(function* () {
  const pg = yield* PgClient.PgClient
  const bounded = <A, E>(statement: Effect.Effect<A, E>) =>
    statement.pipe(
      timeoutDetached("2 seconds"),
      Effect.mapError((cause) => new ReplicasDown({ cause }))
    )
  return Replicas.of({
    report: ({ gauges, host, id, version }) =>
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
    leave: (id) => Effect.asVoid(bounded(pg`DELETE FROM replicas WHERE id = ${id}::text::uuid`)),
    list: bounded(
      Effect.map(
        pg`
          SELECT id::text, host, version, started_at AS started, gauges,
            extract(epoch FROM clock_timestamp() - started_at)::float8 AS "upS",
            extract(epoch FROM clock_timestamp() - seen_at)::float8 AS "silentS"
          FROM replicas ORDER BY started_at, id`,
        replicas.list
      )
    )
  })
})

export const layerPostgres: Layer.Layer<Replicas, never, PgClient.PgClient> = Layer.effect(Replicas, make)
