/** Messages of Redis, on a connection that fails to subscribe, or whose messages cannot be handled. Every server here is scripted. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { layerRedis, Redis } from "../../../src/infra/Redis.ts"
import { bulk, makeScriptedRedis, type Reply } from "../../support/ScriptedRedis.ts"
import { comesTrue } from "../../support/wait.ts"

const message = (text: string): string => `>3\r\n${bulk("message")}${bulk("channel")}${bulk(text)}`

/** Subscribes where the first `failures` attempts are answered by `failure`; then messages come. Returns the lines of the log. */
const subscribes = Effect.fnUntraced(function* (failures: number, failure: Reply) {
  const lines: Array<string> = []
  const logger = Logger.make(({ message }) => void lines.push([message].flat().map(String).join(" ")))
  let attempts = 0
  const server = yield* makeScriptedRedis(([name]) => {
    if (name !== "subscribe") return undefined
    attempts += 1
    return attempts <= failures ? failure : undefined
  })
  const got: Array<string> = []
  const url = Redacted.make(`redis://127.0.0.1:${server.port}`)
  yield* Effect.gen(function* () {
    const redis = yield* Redis
    yield* redis.subscribe(["channel"], (_, text) => {
      if (text === "odd") throw new Error("own defect")
      return Effect.sync(() => void got.push(text))
    })
    assert.isTrue(yield* comesTrue(() => attempts > failures), `${attempts} attempts`)
    const isHeard = () => {
      for (const text of ["odd", "even"]) server.sendToSubscribers(message(text))
      return got.includes("even") && lines.some((line) => line.includes("not handled"))
    }
    assert.isTrue(yield* comesTrue(isHeard), lines.join("\n"))
  }).pipe(Effect.provide(Layer.merge(layerRedis({ url }), Logger.layer([logger]))))
  return lines
}, Effect.scoped)

describe("a subscription", () => {
  it.live.each([
    [8, { bytes: "", cut: true }],
    [2, { bytes: "-NOPERM no permissions\r\n" }]
  ] as const)(
    "when it fails (%i times, %j), then it is made all the same, a refusal is logged once, and a message that cannot be handled ends nothing",
    ([failures, failure]) =>
      Effect.gen(function* () {
        const lines = yield* subscribes(failures, failure)
        const refusals = lines.filter((line) => line.includes("redis refuses messages"))
        assert.strictEqual(refusals.length, "cut" in failure ? 0 : 1)
      })
  )
})
