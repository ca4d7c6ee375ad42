/** What commands need of the database. */
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerFromSettings, Registry } from "../../src/admin/Registry.ts"
import { Records } from "../../src/admin/records/Records.ts"
import { makeCalendar, TimeZone } from "../../src/domain/Calendar.ts"
import { assertSchema } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerPostgres as layerReplicas, Replicas } from "../../src/replicas/Replicas.ts"
import { readTimeZone } from "../../src/replicas/timeZone.ts"
import { checked } from "../checks/Check.ts"
import { databaseChecks, databaseStatus } from "../checks/database.ts"
import { databaseAddress, settings } from "../environment.ts"

export const layerDatabase = Layer.unwrap(
  Effect.map(databaseAddress, (url) =>
    layerPostgres({ url, maxConnections: 1, applicationName: "tollgate-cli" })
  )
)

/** The database with the schema of this version, and the time zone of its gateways. */
export const layerSchema = Layer.effect(
  TimeZone,
  Effect.andThen(assertSchema, Effect.map(readTimeZone, makeCalendar))
).pipe(Layer.provideMerge(layerDatabase))

/** What one command builds twice, it builds once: it has one connection. */
const memo = Layer.makeMemoMapUnsafe()
const build = <A, E>(layer: Layer.Layer<A, E>) =>
  Effect.flatMap(Effect.scope, (scope) => Layer.buildWithMemoMap(layer, memo, scope))

export const calendar = Effect.map(build(layerSchema), Context.get(TimeZone))

const layerRegistry = Layer.unwrap(Effect.map(settings, layerFromSettings))

export const registry = Effect.map(build(Layer.provide(layerRegistry, layerSchema)), Context.get(Registry))
export const records = Effect.map(build(Layer.provide(Records.layer, layerSchema)), Context.get(Records))
export const database = Effect.map(Layer.build(layerDatabase), Context.get(SqlClient.SqlClient))

export const replicas = Effect.map(
  Layer.build(Layer.provide(layerReplicas, layerDatabase)),
  Context.get(Replicas)
)

export const status = checked("database", Effect.provide(databaseStatus, layerDatabase))
export const doctor = checked(
  "database",
  Effect.flatMap(settings, ({ databaseUrl }) =>
    Effect.provide(databaseChecks(databaseUrl === undefined), layerDatabase)
  )
)
