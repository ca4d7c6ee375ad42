/** What the workers of a gateway agree about: the queue, the circuit, the connections, who is alive. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { isAlive } from "../../../src/infra/embedded/RuntimeFile.ts"
import { layerPostgres as layerReplicas } from "../../../src/replicas/postgres.ts"
import { Replicas } from "../../../src/replicas/Replicas.ts"
import { heapFlagsOf } from "../../../src/workers/primary/heap.ts"
import { eventually, Fake } from "../../support/Gateway.ts"
import { TestDatabase } from "../../support/TestPostgres.ts"
import { figure, get, makeKey, post, startGateway, stream, world } from "./support.ts"

layer(world, { excludeTestServices: true, timeout: 120_000 })("workers of one gateway", (it) => {
  it.effect(
    "when the worker dies whose request has the only place at the model server, then the next in line goes at once",
    () =>
      Effect.gen(function* () {
        const fake = yield* Fake
        const gateway = yield* startGateway({ BACKEND_MAX_CONCURRENT: "1", SHUTDOWN_GRACE_MS: "1000" })
        const { url } = gateway
        const { secret } = yield* makeKey()
        yield* eventually(
          Effect.promise(() => post(url, secret)),
          ({ status }) => status === 200
        )
        const asked = fake.requests.length
        fake.script(stream(600, 100))
        const first = yield* Effect.forkChild(Effect.promise(() => post(url, secret).catch(() => undefined)))
        yield* fake.until(() => fake.requests.length > asked)
        const wait = Effect.forkChild(
          Effect.promise(() => Promise.all([1, 2, 3, 4].map(() => post(url, secret).catch(() => undefined))))
        )
        const depth = Effect.map(
          Effect.promise(() => get(url, "/metrics")),
          ({ text }) => figure(text, "tollgate_queue_depth")
        )
        const next = (ms: number) =>
          eventually(
            Effect.sync(() => fake.requests.length > asked + 1),
            Boolean,
            ms
          )
        yield* wait
        yield* eventually(depth, (n) => n === 4)
        assert.strictEqual(fake.requests.length, asked + 1)
        const [a = -1, b = -1] = gateway.workers()
        process.kill(a, "SIGKILL")
        if (!(yield* next(2000))) {
          // The other one has the place. Its sibling is a new one, so requests wait there first.
          yield* eventually(
            Effect.sync(() => gateway.printed()),
            (printed) => printed.includes("worker replaced"),
            15_000
          )
          yield* eventually(depth, (n) => n === 2)
          yield* wait
          yield* eventually(depth, (n) => n === 6)
          process.kill(b, "SIGKILL")
          assert.isTrue(yield* next(2000), "long before a lease of 30 s ends")
        }
        yield* Fiber.join(first)
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when the model server fails, then all workers open together, and one probe goes to it",
    () =>
      Effect.gen(function* () {
        const fake = yield* Fake
        const gateway = yield* startGateway({ BREAKER_FAILURES: "6", BREAKER_OPEN_MS: "3000" })
        const { url } = gateway
        const { secret } = yield* makeKey()
        yield* eventually(
          Effect.promise(() => post(url, secret)),
          ({ status }) => status === 200
        )
        for (let i = 0; i < 6; i += 1) fake.script({ does: "answer", status: 500, body: "{}" })
        const before = fake.requests.length
        // In turn: three failures on each worker.
        for (let i = 0; i < 6; i += 1) {
          assert.strictEqual((yield* Effect.promise(() => post(url, secret))).status, 502)
        }
        const calls = () => fake.requests.slice(before).filter(({ path }) => path === "/api/chat").length
        assert.strictEqual(calls(), 6)
        for (let i = 0; i < 4; i += 1) {
          const refused = yield* Effect.promise(() => post(url, secret))
          assert.deepStrictEqual([refused.status, Number(refused.headers["retry-after"]) > 0], [502, true])
        }
        assert.strictEqual(calls(), 6)
        const state = Effect.map(
          Effect.promise(() => get(url, "/metrics")),
          ({ text }) => figure(text, "tollgate_breaker_state")
        )
        assert.strictEqual(yield* state, 2)
        yield* eventually(state, (value) => value === 1)
        fake.script(stream(20, 50))
        const raced = yield* Effect.promise(() =>
          Promise.all(Array.from({ length: 12 }, () => post(url, secret)))
        )
        assert.isAtLeast(raced.filter(({ status }) => status === 200).length, 1)
        assert.isAtLeast(raced.filter(({ status }) => status === 502).length, 1)
        yield* eventually(state, (value) => value === 0)
        assert.strictEqual(
          gateway.printed().split("circuit breaker opened").length - 1,
          1,
          "it is logged once for all workers"
        )
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when workers run, then tollgate status has a line for each, and their connections are bounded together",
    () =>
      Effect.gen(function* () {
        const pg = yield* PgClient.PgClient
        const [before] = yield* pg<{ readonly n: number }>`
        SELECT count(*)::float8 AS n FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'tollgate'`
        const replicas = yield* Effect.provide(Replicas, layerReplicas)
        const others = new Set((yield* replicas.list).map(({ id }) => id))
        const gateway = yield* startGateway({ DATABASE_CONNECTIONS: "9" })
        const { secret } = yield* makeKey()
        yield* Effect.promise(() => Promise.all(Array.from({ length: 200 }, () => post(gateway.url, secret))))
        const [after] = yield* pg<{ readonly n: number }>`
        SELECT count(*)::float8 AS n FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'tollgate'`
        assert.isAtMost((after?.n ?? 0) - (before?.n ?? 0), 8, "four for each of two workers")
        const own = yield* eventually(
          Effect.map(replicas.list, (rows) => rows.filter(({ id }) => !others.has(id))),
          (rows) => rows.length >= 2
        )
        assert.deepStrictEqual(own.map(({ host }) => host.split("#")[1]).toSorted(), ["1", "2"])
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when a worker is stopped, then its requests stay its own; when it has not answered for 15 s, then it is replaced",
    () =>
      Effect.gen(function* () {
        const [pg, fake] = [yield* PgClient.PgClient, yield* Fake]
        const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "1000" })
        const { url } = gateway
        const { prefix, secret } = yield* makeKey()
        yield* eventually(
          Effect.promise(() => post(url, secret)),
          ({ status }) => status === 200
        )
        for (let i = 0; i < 2; i += 1) fake.script(stream(600, 100))
        const intents = Effect.map(
          pg<{ readonly n: number }>`SELECT count(*)::float8 AS n FROM intents WHERE key_prefix = ${prefix}`,
          ([row]) => row?.n ?? 0
        )
        // One after the other, so that each worker gets one.
        const streams = yield* Effect.forEach([1, 2], (number) =>
          Effect.tap(
            Effect.forkChild(Effect.promise(() => post(url, secret).catch(() => undefined))),
            eventually(intents, (n) => n === number)
          )
        )
        const [frozen = -1] = gateway.workers()
        process.kill(frozen, "SIGSTOP")
        yield* Effect.sleep("5 seconds")
        assert.strictEqual(yield* intents, 2, "slow is not dead")
        assert.include(gateway.workers(), frozen)
        yield* eventually(
          Effect.sync(() => gateway.workers()),
          (now) => now.length === 2 && !now.includes(frozen),
          40_000
        )
        assert.notInclude(gateway.workers(), frozen)
        assert.match(gateway.printed(), /worker does not answer, it is killed/)
        assert.strictEqual(yield* eventually(intents, (n) => n === 1), 1)
        yield* Fiber.interruptAll(streams)
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when a file of a secret cannot be used at SIGHUP, then the old workers stay, and it says why",
    () =>
      Effect.gen(function* () {
        const folder = mkdtempSync(path.join(tmpdir(), "tollgate-workers-"))
        yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true })))
        const file = path.join(folder, "url")
        const good = Redacted.value((yield* TestDatabase).url)
        writeFileSync(file, good)
        const gateway = yield* startGateway({ DATABASE_URL: "", DATABASE_URL_FILE: file })
        const before = gateway.workers()
        writeFileSync(file, "mysql://hunter2@db")
        gateway.signal("SIGHUP")
        yield* eventually(
          Effect.sync(() => gateway.printed()),
          (printed) => printed.includes("settings cannot be used, workers not replaced")
        )
        assert.notInclude(gateway.printed(), "hunter2")
        assert.deepStrictEqual(gateway.workers(), before)
        writeFileSync(file, good)
        gateway.signal("SIGHUP")
        yield* eventually(
          Effect.sync(() => gateway.workers()),
          (now) => now.length === 2 && !now.some((pid) => before.includes(pid)),
          30_000
        )
        assert.isFalse(before.some(isAlive))
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect("when the machine has memory for one process, then the heaps of both workers share it", () =>
    Effect.gen(function* () {
      const gateway = yield* startGateway()
      const [flag = "none"] = heapFlagsOf(2, process)
      const started = gateway.workers().map((pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8"))
      assert.strictEqual(started.length, 2)
      for (const words of started) assert.include(words.split("\0"), flag)
    }).pipe(Effect.scoped)
  )
})
