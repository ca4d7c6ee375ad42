/** Clients of Redis whose connections end at the worst moment. An error that nobody handles would end the process. */
import { writeFileSync } from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { layerRedis, Redis } from "../../../src/infra/Redis.ts"
import { storeFault } from "../../../src/infra/storeFault.ts"
import { bulk, makeScriptedRedis, type Reply } from "../../support/ScriptedRedis.ts"
import { comesTrue, eventually } from "../../support/wait.ts"
import { testWith } from "../../support/testWith.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const unhandledErrors = Effect.acquireRelease(
  Effect.sync(() => {
    const errors: Array<unknown> = []
    const collect = (error: unknown) => void errors.push(error)
    process.on("uncaughtException", collect).on("unhandledRejection", collect)
    return { errors, collect }
  }),
  ({ collect }) =>
    Effect.sync(() => void process.off("uncaughtException", collect).off("unhandledRejection", collect))
)

const works = Effect.gen(function* () {
  const redis = yield* Redis
  const reply = yield* eventually(Effect.option(redis.send("SET", ["a", "b"])), ({ _tag }) => _tag === "Some")
  assert.strictEqual(reply._tag, "Some", `the client is ${redis.client.status}`)
})

const layerOn = (port: number) =>
  layerRedis({ url: Redacted.make(`redis://user:password@127.0.0.1:${port}`), commandTimeoutMs: 200 })

const test = testWith(it.live)

describe("a client of Redis", () => {
  test("when its connections are cut in the midst of any reply, then no error is left unhandled, and it works and hears messages again", function* () {
    const { errors } = yield* unhandledErrors
    let commands = 0
    let cut: { readonly at: number; readonly bytes: (whole: string) => number } | undefined
    const server = yield* makeScriptedRedis((_, whole): Reply | undefined => {
      commands += 1
      if (cut === undefined || commands < cut.at) return undefined
      const bytes = whole.slice(0, cut.bytes(whole))
      cut = undefined
      return { bytes, cut: true }
    })
    yield* Effect.gen(function* () {
      const redis = yield* Redis
      let heard = 0
      yield* redis.subscribe(["channel"], () => Effect.sync(() => void (heard += 1)))
      yield* works
      // Each time all connections are made anew, and one more of their commands is answered.
      for (let at = 1; at <= 24; at += 1) {
        cut = { at, bytes: ({ length }) => [0, 1, length / 2][at % 3] ?? 0 }
        commands = 0
        server.reset()
        yield* works
        const before = heard
        const isHeard = () => {
          server.sendToSubscribers(`>3\r\n${bulk("message")}${bulk("channel")}${bulk("text")}`)
          return heard > before
        }
        assert.isTrue(yield* comesTrue(isHeard), `cut at command ${at}`)
      }
      assert.deepStrictEqual(errors, [])
    }).pipe(Effect.provide(layerOn(server.port)))
  })

  test("when a connection tells two errors, as one with TLS may, then none is left unhandled", function* () {
    const server = yield* makeScriptedRedis(() => undefined)
    yield* Effect.gen(function* () {
      yield* works
      const { client } = yield* Redis
      for (const text of ["alert", "reset"]) client.stream.emit("error", new Error(text))
    }).pipe(Effect.provide(layerOn(server.port)))
  })

  test("when the file of the URL has another user and password, then the next connection logs in with them", function* () {
    const logins = new Set<string>()
    const server = yield* makeScriptedRedis((words) => {
      const at = words.findIndex((word) => word.toLowerCase() === "auth")
      if (at >= 0) logins.add(words.slice(at + 1, at + 3).join(" "))
      return undefined
    })
    const folder = yield* temporaryFolder
    const label = path.join(folder, "url")
    const textOf = (login: string) => `redis://${login}@127.0.0.1:${server.port}`
    const url = Redacted.make(textOf("one:first"), { label })
    yield* Effect.gen(function* () {
      writeFileSync(label, textOf("one:first"))
      yield* works
      assert.deepStrictEqual([...logins], ["one first"])
      writeFileSync(label, textOf("two:sec%40nd"))
      server.reset()
      assert.isTrue(yield* comesTrue(() => logins.has("two sec@nd")))
      yield* works
    }).pipe(Effect.provide(layerRedis({ url, commandTimeoutMs: 200 })))
  })

  test("when the password is refused, then who asks for the server hears it", function* () {
    const isLogin = (word: string) => word.toLowerCase() === "auth"
    const server = yield* makeScriptedRedis((words) => ({
      bytes: words.some(isLogin)
        ? "-WRONGPASS invalid username-password pair\r\n"
        : "-NOAUTH Authentication required.\r\n"
    }))
    yield* Effect.gen(function* () {
      const { askServer } = yield* Redis
      const named = yield* eventually(
        Effect.map(Effect.flip(askServer), (error) => storeFault(error).fault),
        (fault) => fault === "password refused"
      )
      assert.strictEqual(named, "password refused")
    }).pipe(Effect.provide(layerOn(server.port)))
  })
})
