import { randomUUID } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerHeartbeat } from "../../src/replicas/heartbeat.ts"
import { layerPostgres } from "../../src/replicas/postgres.ts"
import { forgetAfterS, Replicas } from "../../src/replicas/Replicas.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { eventually } from "../support/Gateway.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { suite } from "./Replicas.ts"

suite("Postgres", layerPostgres.pipe(Layer.provide(layerTestPostgres())))

layer(layerPostgres.pipe(Layer.provideMerge(layerTestPostgres())), { excludeTestServices: true })(
  "the table of processes",
  (it) => {
    it.effect("when a process has been silent for an hour, then the report of another one removes it", () =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const { leave, list, report } = yield* Replicas
        const [silent, alive] = [randomUUID(), randomUUID()]
        yield* report({ id: silent, host: "a", version: "1.0.0", gauges: {} })
        yield* sql`UPDATE replicas SET seen_at = now() - make_interval(secs => ${forgetAfterS + 1})`
        assert.isAbove((yield* list).rows[0]?.silentS ?? 0, forgetAfterS)
        yield* report({ id: alive, host: "b", version: "1.0.0", gauges: {} })
        assert.deepStrictEqual(
          (yield* list).rows.map(({ id }) => id),
          [alive]
        )
        yield* leave(alive)
      })
    )

    it.effect("when a process runs, then it reports its gauges; when it ends, then its row is gone", () =>
      Effect.gen(function* () {
        const { list } = yield* Replicas
        const seen = yield* Effect.scoped(
          Effect.gen(function* () {
            const metrics = yield* Metrics.Metrics
            yield* metrics.probe({
              name: "tollgate_breaker_state",
              help: "x",
              read: Effect.succeed(2)
            })
            yield* metrics.probe({
              name: "tollgate_discovery_age_seconds",
              help: "x",
              read: Effect.succeed(Number.POSITIVE_INFINITY)
            })
            yield* metrics.probes({
              name: "tollgate_ready",
              help: "x",
              label: "dependency",
              values: { cache: Effect.succeed(0), database: Effect.succeed(1) }
            })
            yield* Layer.build(layerHeartbeat({ host: "pod-1" }))
            return yield* eventually(list, ({ rows }) => rows.length > 0)
          })
        )
        assert.deepInclude(seen.rows[0], {
          host: "pod-1",
          gauges: {
            "tollgate_ready{cache}": 0,
            "tollgate_ready{database}": 1,
            tollgate_breaker_state: 2,
            tollgate_discovery_age_seconds: null
          }
        })
        assert.deepStrictEqual((yield* list).rows, [])
      }).pipe(Effect.provide(Metrics.layer))
    )
  }
)
