import { randomUUID } from "node:crypto"
import { assert } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { layerHeartbeat } from "../../src/replicas/heartbeat.ts"
import { forgetAfterS, layerPostgres, Replicas } from "../../src/replicas/Replicas.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { eventually } from "../support/Gateway.ts"
import { layerTestPostgres } from "../support/TestPostgres.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

inWorld(layerPostgres.pipe(Layer.provideMerge(layerTestPostgres())))("the table of processes", (test, it) => {
  test("when processes report and one leaves, then the list has the last report of the others", function* () {
    const { leave, list, report } = yield* Replicas
    const [one, other] = [
      { id: randomUUID(), host: "a", version: "1.0.0" },
      { id: randomUUID(), host: "b", version: "1.0.1" }
    ]
    yield* report({ ...one, gauges: { models: 1 } })
    yield* report({ ...other, gauges: {} })
    const [before] = yield* list
    yield* report({ ...one, gauges: { models: 2, age: null, "ready{cache}": 0 } })
    const both = yield* list
    assert.deepStrictEqual(
      both.map(({ host }) => host),
      ["a", "b"]
    )
    const [first] = both
    assert.deepStrictEqual(
      { ...first, silentS: 0, upS: 0, leavesInS: 0 },
      {
        ...one,
        started: before?.started ?? new Date(0),
        silentS: 0,
        upS: 0,
        alive: true,
        leavesInS: 0,
        gauges: { models: 2, age: null, "ready{cache}": 0 }
      }
    )
    assert.isBelow(both[0]?.silentS ?? Number.NaN, 30)
    yield* leave(other.id)
    yield* leave(other.id)
    assert.deepStrictEqual(
      (yield* list).map(({ id }) => id),
      [one.id]
    )
  })

  test("when a process has been silent for an hour, then the report of another one removes it", function* () {
    const { leave, list, report } = yield* Replicas
    const [silent, alive] = [randomUUID(), randomUUID()]
    yield* report({ id: silent, host: "a", version: "1.0.0", gauges: {} })
    yield* sql`UPDATE replicas SET seen_at = now() - make_interval(secs => ${forgetAfterS + 1})`
    assert.isAbove((yield* list)[0]?.silentS ?? 0, forgetAfterS)
    yield* report({ id: alive, host: "b", version: "1.0.0", gauges: {} })
    assert.deepStrictEqual(
      (yield* list).map(({ id }) => id),
      [alive]
    )
    // One that is gone stands below those that report, however old it is, and says when it leaves.
    const gone = randomUUID()
    yield* report({ id: gone, host: "c", version: "1.0.0", gauges: {} })
    yield* sql`UPDATE replicas SET started_at = now() - interval '1 day', seen_at = now() - interval '10 minutes'
      WHERE id = ${gone}::text::uuid`
    const [first, last] = yield* list
    assert.deepStrictEqual([first?.id, first?.alive, last?.id, last?.alive], [alive, true, gone, false])
    assert.closeTo(last?.leavesInS ?? 0, forgetAfterS - 600, 60)
    yield* leave(gone)
    yield* leave(alive)
  })

  test("when a command asks, then it has the answers of those that answer in time, and the names of the others", function* () {
    const { answer, ask, leave, list, question, report } = yield* Replicas
    const question1 = { action: "stop", key: "tg_AAAAAAAAA" } as const
    assert.deepStrictEqual(
      yield* ask(question1, 60_000),
      { answers: [], silent: [] },
      "nobody is there to wait for"
    )
    const [quick, silent] = [randomUUID(), randomUUID()]
    yield* report({ id: quick, host: "a", version: "1.0.0", gauges: {} })
    yield* report({ id: silent, host: "b", version: "1.0.0", gauges: {} })
    const asking = yield* Effect.forkChild(ask(question1, 3000))
    const ids = sql<{ readonly id: string }>`SELECT id::text FROM questions`
    const [asked] = yield* eventually(ids, (rows) => rows.length === 1)
    const id = asked?.id ?? ""
    assert.deepStrictEqual(yield* question(id), question1)
    assert.isUndefined(yield* question("'; not an id"))
    yield* answer(id, quick, { open: 3, requests: [] })
    const answered = yield* Fiber.join(asking)
    assert.deepStrictEqual(answered.answers, [{ open: 3, requests: [] }])
    assert.deepStrictEqual(
      answered.silent.map((one) => one.id),
      [silent]
    )
    assert.lengthOf(yield* ids, 0, "nothing is left of a question whose command has ended")
    yield* sql`INSERT INTO questions (action, asked_at) VALUES ('list', now() - interval '2 hours'), ('list', now())`
    yield* leave(silent)
    yield* ask(question1, 0)
    assert.lengthOf(yield* ids, 1, "an old question of a command that was killed is deleted")
    yield* leave(quick)
    assert.lengthOf(yield* list, 0)
  })

  testWith(it.effect, Metrics.layer)(
    "when a process runs, then it reports its gauges; when it ends, then its row is gone",
    function* () {
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
          yield* metrics.probe({
            name: "tollgate_ready",
            help: "x",
            labels: ["dependency"],
            read: Effect.succeed([
              { labels: { dependency: "cache" }, value: 0 },
              { labels: { dependency: "database" }, value: 1 }
            ])
          })
          yield* Layer.build(layerHeartbeat({ host: "pod-1", id: randomUUID() }))
          return yield* eventually(list, (rows) => rows.length > 0)
        })
      )
      assert.deepInclude(seen[0], {
        host: "pod-1",
        gauges: {
          "tollgate_ready{cache}": 0,
          "tollgate_ready{database}": 1,
          tollgate_breaker_state: 2,
          tollgate_discovery_age_seconds: null
        }
      })
      assert.deepStrictEqual(yield* list, [])
    }
  )
})
