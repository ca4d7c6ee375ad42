/** A user of Redis with no more rights than the operations guide gives it. */
import { readFileSync } from "node:fs"
import * as path from "node:path"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { fake } from "../support/FakeBackend.ts"
import { eventually, Fake, generous, layerFake, newKey } from "../support/Gateway.ts"
import { chatWith, makeGatewayProcess } from "../support/GatewayProcess.ts"
import { reply } from "../support/redisTls.ts"
import { TestDatabase, TestPostgres } from "../support/TestPostgres.ts"
import { layerPrivateRedis, TestRedis } from "../support/TestRedis.ts"
import { testWith } from "../support/testWith.ts"

const guide = readFileSync(path.resolve(import.meta.dirname, "../../docs/deploy.md"), "utf8")
const [, rules = ""] = /ACL SETUSER gateway on '>hidden-word' (.*)/.exec(guide) ?? []

const layerRegistered = layerRegistry({ defaults: generous }).pipe(Layer.provideMerge(TestPostgres))

const ofUser = (url: string): string => {
  const own = new URL(url)
  own.username = "gateway"
  own.password = "hidden-word"
  return own.href
}

/**
 * A gateway with a line, whose user of Redis has the rules of the guide that are `given`. Three requests at once, and the log.
 */
const served = (url: string, given: (rule: string) => boolean) =>
  Effect.gen(function* () {
    const own = rules.split(" ").filter(given)
    assert.isAbove(own.length, 8, "the guide has the rules")
    assert.strictEqual(yield* reply(url, "ACL", "SETUSER", "gateway", "on", ">hidden-word", ...own), "OK")
    const [backend, database] = [yield* Fake, yield* TestDatabase]
    const { secret } = yield* newKey()
    backend.always({ does: "stream", lines: [fake.chat("a"), fake.done()], gapMs: 100 })
    const gateway = yield* makeGatewayProcess({
      NODE_ENV: "production",
      DATABASE_URL: Redacted.value(database.url),
      REDIS_URL: ofUser(url),
      BACKEND_URL: backend.url,
      BACKEND_MAX_CONCURRENT: "1",
      SHUTDOWN_DRAIN_MS: "0"
    })
    const chat = Effect.map(chatWith(gateway, secret), ({ status }) => status)
    yield* eventually(chat, (status) => status === 200)
    // A busy machine may answer a command of Redis too late, which is a 503 of its own.
    const three = Effect.all([chat, chat, chat], { concurrency: "unbounded" })
    const statuses = yield* eventually(three, (found) => found.every((status) => status === 200))
    assert.strictEqual(yield* gateway.stop, 0)
    const lines = gateway.printed().split("\n")
    const warnings = lines.filter((line) => line.includes("NOPERM"))
    return { statuses, warnings }
  }).pipe(Effect.scoped, Effect.provide(Layer.merge(layerFake, layerRegistered)))

const wholeAnswers: Effect.Success<ReturnType<typeof served>> = { statuses: [200, 200, 200], warnings: [] }

const test = testWith(it.live, layerPrivateRedis())

test("when the user of Redis has the rights of the operations guide, then requests are served, in line too, and no command is forbidden", function* () {
  const { url } = yield* TestRedis
  assert.deepStrictEqual(yield* served(url, () => true), wholeAnswers)
})

test("when it lacks the channels, then a gateway with a line serves by its beats, and the log says why", function* () {
  const { url } = yield* TestRedis
  const { statuses, warnings } = yield* served(url, (rule) => !rule.startsWith("&"))
  assert.deepStrictEqual(statuses, [200, 200, 200])
  assert.match(warnings.join("\n"), /redis refuses messages.*NOPERM/)
})
