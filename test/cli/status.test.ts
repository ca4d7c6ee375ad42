/** `tollgate status` and `tollgate doctor`: what they say, and their exit codes. */
import { EventEmitter } from "node:events"
import { assert, it, vi } from "@effect/vitest"
import { Effect, Fiber, Layer, Redacted, Schema } from "effect"
import { type Check, checkTable, clockCheck, failed, ok } from "../../cli/checks/Check.ts"
import { render } from "../../cli/terminal.ts"
import { connected } from "../../cli/checks/cache.ts"
import { databaseChecks } from "../../cli/checks/database.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { explain } from "../../src/observability/explain.ts"
import { eventually, Fake, layerFake } from "../support/Gateway.ts"
import { makeGatewayProcess } from "../support/GatewayProcess.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerPrivateRedis, layerTestRedis, TestRedis } from "../support/TestRedis.ts"
import { Admin, tollgateHere } from "./inProcess.ts"
import { json, succeeds, tollgateWith } from "./tollgate.ts"
import { inWorld, testWith } from "../support/testWith.ts"
import { sql } from "../support/sql.ts"

const Status = Schema.Struct({
  version: Schema.String,
  replicas: Schema.Array(
    Schema.Struct({
      replica: Schema.String,
      alive: Schema.Boolean,
      not_ready: Schema.Array(Schema.String),
      breaker: Schema.NullOr(Schema.String),
      keys_refused: Schema.NullOr(Schema.Finite),
      models: Schema.NullOr(Schema.Finite),
      open_requests: Schema.NullOr(Schema.Finite)
    })
  ),
  checks: Schema.Array(Schema.Struct({ name: Schema.String, state: Schema.String, detail: Schema.String }))
})

const stateOf = ({ checks }: typeof Status.Type, name: string) =>
  checks.find((check) => check.name === name)?.state

inWorld(Layer.mergeAll(TestPostgres, layerTestRedis, layerFake))("a gateway that runs", (test, it) => {
  test("when all is well, then status shows the replica and exits with 0, and doctor agrees", function* () {
    const [{ url }, redis, fake] = [yield* TestDatabase, yield* TestRedis, yield* Fake]
    const environment = {
      DATABASE_URL: Redacted.value(url),
      REDIS_URL: redis.url,
      BACKEND_URL: fake.url
    }
    const gateway = yield* makeGatewayProcess({ NODE_ENV: "production", ...environment })
    yield* eventually(
      sql`SELECT FROM replicas WHERE (gauges ->> 'tollgate_discovery_models')::int > 0`,
      (rows) => rows.length > 0
    )
    // On a busy machine the database answers late: the operator asks again.
    const asked = (...args: ReadonlyArray<string>) =>
      eventually(tollgateWith(environment, args), ({ code }) => code === 0)
    const ran = yield* asked("status", "--json")
    succeeds(ran)
    const status = yield* json(Status, ran)
    assert.lengthOf(status.replicas, 1)
    assert.deepInclude(status.replicas[0], {
      alive: true,
      not_ready: [],
      breaker: "closed",
      keys_refused: 0
    })
    assert.isAbove(status.replicas[0]?.models ?? 0, 0)
    for (const name of ["database", "schema", "cache", "backend", "replicas"])
      assert.strictEqual(stateOf(status, name), "ok", name)
    const text = (yield* asked("status")).stdout
    assert.match(text, /REPLICA +VERSION[^]+ yes +closed [^]+CHECK +STATE/)
    const doctor = yield* asked("doctor")
    succeeds(doctor)
    assert.match(doctor.stdout, /database clock +ok/)
    assert.match(doctor.stdout, /cache memory +ok/)
    // The row goes with its process.
    assert.strictEqual(yield* gateway.stop, 0)
    const after = yield* tollgateWith(environment, ["status"])
    assert.strictEqual(after.code, 1)
    assert.match(after.stdout, /replicas +failed +no gateway runs/)
  })

  test("when a store does not answer, then both say the actual error and exit with 1", function* () {
    const environment = {
      DATABASE_URL: "postgres://somebody:secret-word@127.0.0.1:1/nothing",
      REDIS_URL: "redis://:secret-word@127.0.0.1:1",
      BACKEND_URL: "http://127.0.0.1:1"
    }
    for (const command of ["status", "doctor"]) {
      const { code, stderr, stdout } = yield* tollgateWith(environment, [command])
      assert.strictEqual(code, 1)
      for (const [name, fault] of [
        ["database", "no answer: "],
        ["cache", "no answer: "],
        ["backend", ""]
      ])
        assert.match(stdout, new RegExp(`${name} +failed +${fault}connect ECONNREFUSED 127.0.0.1:1\\n`))
      assert.notInclude(stdout + stderr, "secret-word")
      assert.strictEqual(stderr, "")
    }
  })

  for (const [what, extra, error] of [
    ["full", ["--maxmemory", "100kb"], "memory full: OOM "],
    ["a replica", ["--replicaof", "127.0.0.1 1"], "read-only: (?:READONLY|MASTERDOWN) "]
  ] as const)
    testWith(it.effect, layerPrivateRedis(extra))(
      `when Redis is ${what}, then both say so and exit with 1`,
      function* () {
        const { url } = yield* TestRedis
        for (const command of ["status", "doctor"]) {
          const ran = yield* tollgateWith({ DATABASE_URL: "postgres://127.0.0.1:1/none", REDIS_URL: url }, [
            command
          ])
          assert.match(ran.stdout, new RegExp(`cache +failed +${error}`), command)
          assert.strictEqual(ran.code, 1)
        }
      }
    )

  test("when the database is the gateway's own, then its user is no reason to worry", function* () {
    const userOf = (checks: ReadonlyArray<Check>) => checks.find(({ name }) => name === "database user")
    assert.strictEqual(userOf(yield* databaseChecks(false))?.state, "warning")
    assert.strictEqual(userOf(yield* databaseChecks(true))?.state, "ok")
  })

  test("when a setting is wrong, then doctor names it and what was expected", function* () {
    const { code, stdout } = yield* tollgateWith({ PORT: "many", BACKND_URL: "x" }, ["doctor"])
    assert.strictEqual(code, 1)
    assert.match(stdout, /settings +failed +PORT: got text of 4 characters\n +-> expected/)
    assert.match(stdout, /settings +failed +BACKND_URL/)
  })
})

const test = testWith(it.effect, Admin)

test("when a store is down, then the replicas that miss it are no second line", function* () {
  const report = Effect.fnUntraced(function* (gauge: string) {
    yield* sql`DELETE FROM replicas`
    yield* sql`INSERT INTO replicas (id, host, version, gauges)
      SELECT gen_random_uuid(), 'pod', '1.0.0', jsonb_build_object(${gauge}::text, 0)`
    return (yield* tollgateHere("status")).stdout
  })
  // The model server of this command line does not answer.
  const backend = yield* report("tollgate_ready{backend}")
  assert.match(backend, /no: backend[^]*backend +failed/)
  assert.match(backend, /replicas +ok +0 of 1 serve/)
  assert.match(yield* report("tollgate_ready{cache}"), /replicas +failed +1 of 1 refuse requests/)
})

test("when no gateway has reported, then status exits with 1 and says so", function* () {
  const { code, stdout } = yield* tollgateHere("status")
  assert.strictEqual(code, 1)
  assert.match(stdout, /schema +ok/)
  assert.match(stdout, /replicas +failed +no gateway runs/)
})

test("when Redis answers at once or does not, then nothing is left that keeps the command from ending", function* () {
  // The process has timers of others, which end when they like.
  yield* Effect.acquireRelease(
    Effect.sync(() => vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })),
    () => Effect.sync(() => vi.useRealTimers())
  )
  for (const event of ["ready", "none"]) {
    const client = Object.assign(new EventEmitter(), { status: "connecting" })
    const waiting = yield* Effect.forkChild(
      Effect.result(connected).pipe(
        Effect.provideService(Redis, Object.assign(Object.create(null), { client }))
      )
    )
    yield* Effect.yieldNow
    assert.strictEqual(vi.getTimerCount(), 1)
    if (event === "none") yield* Fiber.interrupt(waiting)
    else {
      client.emit(event)
      yield* Fiber.join(waiting)
    }
    assert.strictEqual(vi.getTimerCount(), 0)
    assert.deepStrictEqual([client.listenerCount("error"), client.listenerCount("ready")], [0, 0])
  }
})

it("when a terminal is narrow, then a check is broken into lines and nothing is cut", () => {
  const checks = [ok("a", "x"), failed("database", "one two three four five six", "do this")]
  const text = render(checkTable(checks), 40)
  assert.strictEqual(
    text,
    [
      "CHECK     STATE   DETAIL",
      "a         ok      x",
      "database  failed  one two three four",
      "                  five six",
      "                  -> do this"
    ].join("\n")
  )
})

it("when errors are wrapped, then the innermost one is shown, without keys and escape sequences", () => {
  const inner = Object.assign(new Error("no \u001b[31mroute"), { code: "EHOSTUNREACH" })
  assert.strictEqual(
    explain(new Error("outer", { cause: { reason: { cause: inner } } })),
    "no \\u001b[31mroute (EHOSTUNREACH)"
  )
  assert.strictEqual(explain(new AggregateError([new Error("refused ECONNREFUSED")])), "refused ECONNREFUSED")
  assert.strictEqual(explain(undefined), "no answer")
})

it("when clocks differ by more than a second, then the check warns and says which is behind", () => {
  assert.strictEqual(clockCheck("c", 900).state, "ok")
  assert.match(clockCheck("c", 1500).detail, /^1\.5 s behind this machine$/)
  assert.match(clockCheck("c", -2500).detail, /^2\.5 s ahead of this machine$/)
})
