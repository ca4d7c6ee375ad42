/** Workers that are replaced or stopped while clients ask. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { Agent } from "undici"
import { eventually, Fake } from "../../support/Gateway.ts"
import { settledBooks } from "../../support/books.ts"
import { get, makeKey, post, type Reply, startGateway, stream, world } from "./support.ts"

/** Asks on kept connections until `stop` is called. */
const askAllTheTime = (url: string, secret: string, clients: number) => {
  const agent = new Agent({ connections: clients })
  const replies: Array<Reply> = []
  const errors: Array<unknown> = []
  const stopped = new AbortController()
  const all = Promise.all(
    Array.from({ length: clients }, async () => {
      while (!stopped.signal.aborted) {
        await post(url, secret, undefined, agent).then(
          (reply) => replies.push(reply),
          (error: unknown) => errors.push(error)
        )
      }
    })
  )
  return {
    replies,
    errors,
    stop: Effect.promise(async () => {
      stopped.abort()
      await all
      await agent.close()
    })
  }
}

layer(world, { excludeTestServices: true, timeout: 120_000 })("a gateway that replaces its workers", (it) => {
  it.effect(
    "when it gets SIGHUP under load, then all workers are new, no request is lost, and a stream runs to its end",
    () =>
      Effect.gen(function* () {
        const [pg, fake] = [yield* PgClient.PgClient, yield* Fake]
        const gateway = yield* startGateway()
        const { url } = gateway
        const { prefix, secret } = yield* makeKey()
        yield* eventually(
          Effect.promise(() => post(url, secret)),
          ({ status }) => status === 200
        )
        const words = 60
        fake.script(stream(words, 50))
        const long = yield* Effect.forkChild(Effect.promise(() => post(url, secret)))
        yield* fake.until(() => fake.requests.length > 1)

        const load = askAllTheTime(url, secret, 8)
        const before = gateway.workers()
        gateway.signal("SIGHUP")
        yield* eventually(
          Effect.sync(() => gateway.workers()),
          (now) => now.length === 2 && !now.some((pid) => before.includes(pid)),
          40_000
        )
        yield* load.stop
        const answer = yield* Fiber.join(long)
        assert.strictEqual(answer.text.trimEnd().split("\n").length, words + 1)
        assert.deepStrictEqual(load.errors, [])
        assert.deepStrictEqual([...new Set(load.replies.map(({ status }) => status))], [200])
        assert.isAbove(load.replies.length, 50)
        const [rows] = yield* pg<{ readonly n: number }>`
        SELECT count(*)::float8 AS n FROM audit_log WHERE key_prefix = ${prefix} AND status = 200`
        assert.isAtLeast(rows?.n ?? 0, load.replies.length + 2)
        assert.match(gateway.printed(), /"message":"worker replaced","worker":2/)
        assert.strictEqual((yield* Effect.promise(() => get(url, "/readyz"))).status, 200)
        assert.deepInclude(yield* settledBooks(20), { difference: 0, open: 0 })
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when it gets SIGTERM, then it is not ready on any worker, streams run to their end, and the code is 0",
    () =>
      Effect.gen(function* () {
        const fake = yield* Fake
        const gateway = yield* startGateway({ SHUTDOWN_DRAIN_MS: "1000" })
        const { url } = gateway
        const { secret } = yield* makeKey()
        yield* eventually(
          Effect.promise(() => post(url, secret)),
          ({ status }) => status === 200
        )
        const words = 60
        const script = stream(words, 50)
        for (let i = 0; i < 4; i += 1) fake.script(script)
        const asked = fake.requests.length
        const streams = yield* Effect.forkChild(
          Effect.promise(() => Promise.all([1, 2, 3, 4].map(() => post(url, secret))))
        )
        yield* fake.until(() => fake.requests.length >= asked + 4)
        gateway.signal("SIGTERM")
        yield* eventually(
          Effect.promise(() => get(url, "/readyz")),
          ({ status }) => status === 503
        )
        for (let i = 0; i < 4; i += 1) {
          assert.strictEqual((yield* Effect.promise(() => get(url, "/readyz"))).status, 503)
        }
        for (const { text } of yield* Fiber.join(streams)) {
          assert.strictEqual(text.trimEnd().split("\n").length, words + 1)
        }
        assert.strictEqual(yield* gateway.ended, 0)
        assert.deepInclude(yield* settledBooks(20), { difference: 0, open: 0 })
      }).pipe(Effect.scoped),
    90_000
  )

  it.effect(
    "when a setting is wrong, then it says so once and ends with 78, before any worker starts",
    () =>
      Effect.gen(function* () {
        const failed = yield* Effect.flip(startGateway({ DATABASE_CONNECTIONS: "7" }))
        const text = String(failed)
        assert.match(text, /DATABASE_CONNECTIONS: got less than four for each worker/)
        assert.strictEqual(text.split("DATABASE_CONNECTIONS").length, 2)
      }).pipe(Effect.scoped),
    90_000
  )
})
