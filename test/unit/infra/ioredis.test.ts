/** What a server may send or leave out, and ioredis would end the process by. Every server here is scripted. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { vi } from "vitest"
import { Single } from "../../../src/infra/ioredis.ts"
import { layerRedis, Redis } from "../../../src/infra/Redis.ts"
import { bulk, list, makeScriptedRedis, type Reply } from "../../support/ScriptedRedis.ts"
import { comesTrue, eventually } from "../../support/wait.ts"

/** Errors that nobody handles end a process, and ioredis prints those that have no listener. Here both are collected. */
const unhandled = Effect.acquireRelease(
  Effect.sync(() => {
    const errors: Array<unknown> = []
    const collect = (error: unknown) => void errors.push(error)
    process.on("uncaughtException", collect).on("unhandledRejection", collect)
    const printing = vi.spyOn(console, "error").mockImplementation((...words) => collect(words))
    return { errors, collect, printing }
  }),
  ({ collect, printing }) =>
    Effect.sync(() => {
      process.off("uncaughtException", collect).off("unhandledRejection", collect)
      printing.mockRestore()
    })
).pipe(Effect.map(({ errors }) => errors))

const works = Effect.gen(function* () {
  const redis = yield* Redis
  const reply = yield* eventually(Effect.option(redis.send("SET", ["a", "b"])), ({ _tag }) => _tag === "Some")
  assert.strictEqual(reply._tag, "Some", `the client is ${redis.client.status}`)
})

/** Uses a client of `kind` while the server answers by `script`, and again when the server is healthy. */
const survives = (
  kind: "single" | "cluster",
  script: (words: ReadonlyArray<string>) => Reply | undefined,
  unasked?: string
) =>
  Effect.gen(function* () {
    const errors = yield* unhandled
    let broken = false
    let met = 0
    const server = yield* makeScriptedRedis((words) => {
      const reply = broken ? script(words) : undefined
      if (reply !== undefined) met += 1
      return reply
    })
    const one = `redis://127.0.0.1:${server.port}`
    yield* Effect.gen(function* () {
      const redis = yield* Redis
      yield* redis.subscribe(["channel"], () => undefined)
      yield* works
      broken = true
      if (unasked === undefined) {
        server.reset()
        yield* eventually(Effect.ignore(redis.send("SET", ["a", "b"])).pipe(Effect.as(0)), () => met > 2)
        assert.isAbove(met, 2)
      } else server.send(unasked)
      yield* Effect.sleep("50 millis")
      broken = false
      yield* works
      assert.deepStrictEqual(errors, [])
    }).pipe(
      Effect.provide(
        layerRedis({ url: Redacted.make(kind === "single" ? one : `${one},${one}`), commandTimeoutMs: 100 })
      )
    )
  }).pipe(Effect.scoped)

const answering =
  (command: string, bytes: string) =>
  (words: ReadonlyArray<string>): Reply | undefined =>
    words.join(" ").toLowerCase().startsWith(command) ? { bytes } : undefined

const nothing = "_\r\n"
const pushes = [`>1\r\n${nothing}`, `>2\r\n${bulk("message")}${nothing}`, `>1\r\n${bulk("subscribe")}`]

describe("a client of Redis", () => {
  it.live.each([nothing, ":1\r\n", "*0\r\n"])(
    "when a subscription is answered by %j, then it connects again",
    (bytes) => survives("single", answering("subscribe", bytes))
  )

  it.live.each([nothing, "-ERR by itself\r\n", ...pushes])(
    "when %j comes without a question, then it works on",
    (bytes) => survives("single", () => undefined, bytes)
  )

  it.live.each([
    ["cluster slots", nothing],
    ["cluster slots", list(nothing)],
    ["cluster slots", list(list(":0\r\n", ":1\r\n", nothing))],
    ["cluster info", "-MOVED 1\r\n"],
    ["info", "-MOVED 1 nowhere\r\n"],
    ["info", "-ASK 1\r\n"],
    ["info", "-MOVED 1 127.0.0.1:99999\r\n"],
    ["set", "-MOVED 15495 127.0.0.1:99999\r\n"]
  ] as const)(
    "when a node of a cluster answers %s by %j, then the client finds the cluster again",
    ([command, bytes]) => survives("cluster", answering(command, bytes))
  )

  it.live("when a slot moves to a node that is not there, then only the request fails", () =>
    survives("cluster", ([name, key]) =>
      name === "set" && key === "a" ? { bytes: "-ASK 15495 127.0.0.1:1\r\n" } : undefined
    )
  )
})

/** As the gateway makes it, but it hears sooner that a sentinel is back. */
const behindSentinel = (port: number) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const client = new Single({
        sentinels: [{ host: "127.0.0.1", port }],
        name: "main",
        failoverDetector: true,
        sentinelReconnectStrategy: () => 10,
        sentinelCommandTimeout: 50,
        retryStrategy: () => 10
      })
      return client.on("error", () => undefined)
    }),
    (client) => Effect.sync(() => client.disconnect())
  )

describe("a client behind sentinels", () => {
  it.live.each(["cut", "silence", { bytes: "-ERR no\r\n" }] satisfies ReadonlyArray<Reply>)(
    "when a sentinel comes back and answers the subscription to failovers by %j, then nothing is thrown",
    (reply) =>
      Effect.gen(function* () {
        const errors = yield* unhandled
        let subscriptions = 0
        const server = yield* makeScriptedRedis(([name]) => {
          if (name !== "subscribe") return undefined
          subscriptions += 1
          return subscriptions === 1 ? undefined : reply
        })
        yield* behindSentinel(server.port)
        assert.isTrue(yield* comesTrue(() => subscriptions === 1))
        yield* Effect.sleep("50 millis")
        server.resetSubscribers()
        assert.isTrue(yield* comesTrue(() => subscriptions > 1))
        yield* Effect.sleep("150 millis")
        assert.deepStrictEqual(errors, [])
      }).pipe(Effect.scoped)
  )

  it.live("when the master says nothing about itself, then nothing is thrown, and it is asked again", () =>
    Effect.gen(function* () {
      const errors = yield* unhandled
      let asked = 0
      const server = yield* makeScriptedRedis(([name]) => {
        if (name !== "info") return undefined
        asked += 1
        return asked < 3 ? { bytes: nothing } : undefined
      })
      const client = yield* behindSentinel(server.port)
      assert.isTrue(yield* comesTrue(() => client.status === "ready"))
      assert.deepStrictEqual(errors, [])
    }).pipe(Effect.scoped)
  )
})
