/** Workers that die, and a primary that dies. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Schedule } from "effect"
import { isAlive } from "../../../src/infra/embedded/RuntimeFile.ts"
import { eventually, Fake, hello } from "../../support/Gateway.ts"
import { settledBooks } from "../../support/books.ts"
import { makeStopwatch } from "../../support/wait.ts"
import { figure, get, makeKey, post, ready, startGateway, stream, world } from "./support.ts"

layer(world, { excludeTestServices: true, timeout: 120_000 })("a gateway whose workers die", (it) => {
  it.effect(
    "when a worker is killed under load, then it is replaced within a second, its slots are free at once, and all requests are in the audit",
    () =>
      Effect.gen(function* () {
        const [pg, fake] = [yield* PgClient.PgClient, yield* Fake]
        const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "1000" })
        const { url } = gateway
        const busy = yield* makeKey({ concurrent: 4 })
        yield* eventually(
          Effect.promise(() => post(url, busy.secret)),
          ({ status }) => status === 200
        )
        // Streams of a minute take all slots of a key, on both workers.
        for (let i = 0; i < 4; i += 1) fake.script(stream(600, 100))
        const openIntents = Effect.map(
          pg<{ readonly n: number }>`SELECT count(*)::float8 AS n FROM intents`,
          ([row]) => row?.n ?? 0
        )
        // One after the other, so that the workers get them in turn.
        const cut = yield* Effect.forEach([1, 2, 3, 4], (number) =>
          Effect.tap(
            Effect.forkChild(Effect.promise(() => post(url, busy.secret).catch(() => undefined))),
            eventually(openIntents, (n) => n === number)
          )
        )
        yield* eventually(
          Effect.promise(() => post(url, busy.secret, hello())),
          ({ status }) => status === 429
        )
        const before = (yield* Effect.promise(() => get(url, "/metrics"))).text

        const [victim = -1, survivor = -1] = gateway.workers()
        const elapsedMs = makeStopwatch()
        process.kill(victim, "SIGKILL")
        yield* Effect.retry(
          Effect.suspend(() => {
            const now = gateway.workers()
            return now.length === 2 && !now.includes(victim) ? Effect.void : Effect.fail("not yet")
          }),
          Schedule.spaced("10 millis")
        )
        const forkedMs = elapsedMs()
        yield* Effect.retry(
          Effect.flatMap(openIntents, (n) => (n <= 2 ? Effect.void : Effect.fail("not yet"))),
          Schedule.spaced("10 millis")
        )
        const closedMs = elapsedMs()
        // Two slots are free again, long before a lease of 30 s ends; the streams of the other worker go on.
        const answered = yield* eventually(
          Effect.promise(() => post(url, busy.secret)),
          ({ status }) => status === 200
        )
        const servedMs = elapsedMs()
        yield* Effect.logInfo(
          `forked after ${forkedMs} ms, closed after ${closedMs} ms, slots after ${servedMs} ms`
        )
        assert.strictEqual(answered.status, 200)
        assert.isBelow(forkedMs, 1000)
        assert.isBelow(servedMs, 5000)
        assert.isTrue(isAlive(survivor))
        assert.strictEqual(yield* openIntents, 2, "a worker that lives keeps its requests")
        assert.match(gateway.printed(), /"message":"worker died","worker":\d,"code":null,"signal":"SIGKILL"/)

        const [aborted] = yield* pg<{ readonly n: number }>`
          SELECT count(*)::float8 AS n FROM audit_log WHERE key_prefix = ${busy.prefix} AND error_type = 'aborted'`
        assert.strictEqual(aborted?.n, 2)
        const after = yield* eventually(
          Effect.map(
            Effect.promise(() => get(url, "/metrics")),
            ({ text }) => text
          ),
          (text) => figure(text, "tollgate_workers") === 2
        )
        assert.strictEqual(figure(after, "tollgate_worker_deaths_total"), 1)
        for (const name of [
          "gateway_requests_total",
          "gateway_tokens_total",
          "gateway_request_duration_seconds_count"
        ]) {
          assert.isAtLeast(figure(after, name), figure(before, name), name)
        }
        yield* Fiber.interruptAll(cut)
        gateway.signal("SIGTERM")
        assert.strictEqual(yield* gateway.ended, 0)
        assert.deepInclude(yield* settledBooks(20), { difference: 0, open: 0 })
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when workers are killed while connections come, then no client waits for an answer that never comes",
    () =>
      Effect.gen(function* () {
        const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "1000" })
        const ends = { answered: 0, broken: 0, waiting: 0 }
        const ask = Effect.promise(() => get(gateway.url, "/healthz")).pipe(
          Effect.map(() => void (ends.answered += 1)),
          Effect.catchCause(() => Effect.sync(() => void (ends.broken += 1))),
          Effect.timeoutOrElse({
            duration: "3 seconds",
            orElse: () => Effect.sync(() => void (ends.waiting += 1))
          })
        )
        const asking = yield* Effect.forkChild(Effect.forever(ask))
        for (let death = 0; death < 5; death += 1) {
          const [victim = -1] = yield* eventually(
            Effect.sync(() => gateway.workers()),
            (pids) => pids.length === 2,
            15_000
          )
          yield* ready(gateway.url)
          process.kill(victim, "SIGKILL")
          yield* eventually(
            Effect.sync(() => gateway.workers()),
            (pids) => pids.length === 2 && !pids.includes(victim),
            15_000
          )
        }
        // A request that nobody answers has been counted by then.
        yield* eventually(
          Effect.sync(() => ends.answered),
          (n) => n > 500,
          15_000
        )
        yield* Fiber.interrupt(asking)
        assert.strictEqual(ends.waiting, 0)
        assert.isAbove(ends.answered, 500)
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when the primary is killed, then its workers end too",
    () =>
      Effect.gen(function* () {
        const gateway = yield* startGateway()
        const workers = gateway.workers()
        assert.strictEqual(workers.length, 2)
        gateway.signal("SIGKILL")
        yield* gateway.ended
        yield* eventually(
          Effect.sync(() => workers.filter(isAlive)),
          (alive) => alive.length === 0
        )
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when one worker dies again and again, then the other says that the gateway is not ready until the place is filled",
    () =>
      Effect.gen(function* () {
        const gateway = yield* startGateway({ SHUTDOWN_GRACE_MS: "1000" })
        const [survivor = -1] = gateway.workers()
        for (let death = 1; death <= 6; death += 1) {
          const others = yield* eventually(
            Effect.sync(() => gateway.workers().filter((pid) => pid !== survivor)),
            (pids) => pids.length === 1,
            15_000
          )
          process.kill(others[0] ?? -1, "SIGKILL")
          yield* eventually(
            Effect.sync(() => gateway.workers()),
            (pids) => !pids.includes(others[0] ?? -1)
          )
        }
        const unready = yield* eventually(
          Effect.promise(() => get(gateway.url, "/readyz")),
          ({ status }) => status === 503
        )
        assert.strictEqual(unready.status, 503)
        assert.match(String(unready.headers["x-readiness"]), /workers=failing/)
        assert.strictEqual((yield* ready(gateway.url)).status, 200)
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when all workers die again and again, then the gateway gives up with code 1",
    () =>
      Effect.gen(function* () {
        const gateway = yield* startGateway()
        const killAll = Effect.sync(() => {
          for (const pid of gateway.workers()) process.kill(pid, "SIGKILL")
        })
        const killing = yield* Effect.forkChild(Effect.repeat(killAll, Schedule.spaced("50 millis")))
        assert.strictEqual(yield* gateway.ended, 1)
        yield* Fiber.interrupt(killing)
        assert.match(gateway.printed(), /tollgate: workers keep dying/)
      }).pipe(Effect.scoped),
    90_000
  )
})
