import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import * as Metrics from "../../src/observability/Metrics.ts"
import { layerPostgres as layerPromptLog } from "../../src/promptlog/postgres.ts"
import { layerPostgres as layerRegistry } from "../../src/admin/postgres.ts"
import { Registry } from "../../src/admin/Registry.ts"
import { callerOf } from "../support/records.ts"
import { TestPostgres } from "../support/TestPostgres.ts"
import { defaultDays, Kept, type KeptRow, suite } from "./PromptLog.ts"

const layerKept = Layer.effect(
  Kept,
  Effect.gen(function* () {
    const [sql, registry] = [yield* SqlClient.SqlClient, yield* Registry]
    yield* registry.createTenant({ name: "t" })
    return Kept.of({
      row: (requestId) =>
        Effect.orDie(
          Effect.map(
            sql<KeptRow>`SELECT prompt, answer, truncated, endpoint,
              round(extract(epoch FROM expires_at - now()) / 86400)::integer AS days
              FROM prompt_log WHERE request_id = ${requestId}::text::uuid`,
            ([row]) => (row === undefined ? undefined : { ...row })
          )
        ),
      optedIn: (days) =>
        Effect.gen(function* () {
          const { key } = yield* registry.createKey({ tenant: "t", name: "k", allowDuplicate: true })
          yield* registry.changeKey(key.prefix, {
            promptLog: true,
            ...(days === undefined ? {} : { promptLogDays: days })
          })
          const [row] = yield* sql<{ readonly id: string }>`
            SELECT id::text AS id FROM api_keys WHERE prefix = ${key.prefix}`
          return { ...callerOf(row?.id), keyPrefix: key.prefix, promptLogDays: days ?? defaultDays }
        }).pipe(Effect.orDie),
      optOut: ({ keyPrefix }) => Effect.orDie(registry.changeKey(keyPrefix, { promptLog: false }))
    })
  })
).pipe(Layer.provide(layerRegistry({ defaults: { rpm: 60, tpm: 1000, concurrent: 4 } })))

suite(
  "Postgres",
  Layer.merge(layerPromptLog({ defaultDays }), layerKept).pipe(
    Layer.provideMerge(Layer.merge(TestPostgres, Metrics.layer))
  )
)
